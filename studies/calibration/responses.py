"""Responses of training to each fault at each severity, fitted to faulty real runs beside their twins."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation.scores import binomial_interval
from rmetric.faults import HARDWARE_FAULTS, SEVERITIES
from rmetric.faults.processes import Response
from studies.calibration.noise import memory_steps
from studies.calibration.real_runs import FEW_DRAWS, Estimate, Pair, interval, median_over_runs, over_runs, robust_sd
from studies.calibration.run_facts import BIN_STEPS, EARLY_STEPS, LEFT_STEPS, POINTS, TIME_CONSTANTS, Curve, RunFacts

Floats = NDArray[np.float64]
HEALING_RATES = np.geomspace(0.02, 0.8, 12)
EARLY_LAGS = np.arange(EARLY_STEPS[0], EARLY_STEPS[1] + 1.0)
VISIBLE_KICK = 0.03
"""Least kick, relative to the loss, from which the response of the gradient norm is worked out."""
VISIBLE = 0.01
"""Excess below which the strength of a run cannot be told from the way it strays."""
OWN_WAY = 9
"""Judgements in the running median from which a run strays: 45 steps."""
WEAKEST = 0.05
"""Least strength of a run over the median one."""


@dataclass
class Cell:
    """The runs of one fault at one severity."""

    pairs: list[Pair]

    @cached_property
    def lasting(self) -> list[Pair]:
        """Runs that neither break nor collapse at once."""
        return [pair for pair in self.pairs if not (pair.breaks_at_once or pair.collapses_at_once)]

    @cached_property
    def facts(self) -> list[RunFacts]:
        """Measurements of each of those runs."""
        return [RunFacts.of(pair) for pair in self.lasting]

    @property
    def shares(self) -> dict[str, list[float]]:
        """Fate → 1 for each run that meets it at once, else 0: it collapses, breaks, or has a broken gradient."""
        lasting = [*map(id, self.lasting)]
        return {
            "collapse_share": [float(pair.collapses_at_once) for pair in self.pairs],
            "non_finite_share": [float(pair.breaks_at_once and not pair.collapses_at_once) for pair in self.pairs],
            "non_finite_gradient_share": [float(id(p) in lasting and _broken_gradient(p)) for p in self.pairs],
        }


def _broken_gradient(pair: Pair) -> bool:
    observations = pair.run.observations
    first = observations.step == pair.onset
    loss, norm = observations["training_loss"][first], observations["grad_norm"][first]
    return bool((np.isfinite(loss) & np.isinf(norm)).any())


# --- the excess ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExcessPath:
    """The median excess of a cell over the steps since the onset."""

    kick: float
    jump: float
    floor: float
    time_constant_steps: float
    misfit: float
    """Weighted sum of squares."""
    delay_steps: float = 0.0

    def at(self, lag: Floats, healing_rate: float) -> Floats:
        """Relative excess."""
        left = np.exp(-np.maximum(lag - self.delay_steps, 0.0) / self.time_constant_steps)
        return np.asarray(
            self.kick * np.exp(-healing_rate * lag) + self.floor + (self.jump - self.floor) * left, dtype=float
        )

    def kicked(self, lag: Floats, healing_rate: float) -> float:
        """Mean of what is left of the kick."""
        return self.kick * float(np.exp(-healing_rate * lag).mean())


def fit_path(facts: Sequence[RunFacts], healing_rate: float) -> ExcessPath:
    """Least squares with coefficients of at least 0, for each candidate τ; the best one is kept.

    The points are medians over runs: of the held-out loss in bins of :data:`BIN_STEPS` steps, and of the training loss
    less the batch's own part in the first steps, which no held-out loss resolves. A point weighs as the root of the
    number of runs. Where most runs are late see :func:`_late_path`.
    """
    if delay := delay_of(facts):
        return _late_path([item.curve for item in facts if item.curve.delay_steps], delay)
    lag, value, weight = _points(facts)
    if not len(lag):
        return ExcessPath(0.0, 0.0, 0.0, 100.0, 0.0)
    kicked = np.exp(-healing_rate * lag)
    found, constant, misfit = _best(lag, value, weight, lambda left: np.column_stack([kicked, left, 1.0 - left]))
    kick, jump, floor = found
    return ExcessPath(kick, jump, floor, constant, misfit)


def _late_path(late: Sequence[Curve], delay_steps: float) -> ExcessPath:
    """J is the median level before the delay; F and τ are fitted to the lag since each run's own delay; no kick."""
    before = max(0.0, float(np.median([curve.level_before_delay for curve in late])))
    after = np.stack([curve.points_after_delay for curve in late])
    lag, value, weight = _medians(after)
    (rise,), constant, misfit = _best(lag, value - before, weight, lambda left: 1.0 - left[:, None])
    return ExcessPath(0.0, before, before + rise, constant, misfit, delay_steps)


def _best(
    lag: Floats, value: Floats, weight: Floats, columns_of: Callable[[Floats], Floats]
) -> tuple[list[float], float, float]:
    """Coefficients, τ and weighted sum of squares of the best τ; the columns are given what is left at each lag."""
    from scipy.optimize import nnls

    fits = []
    for constant in TIME_CONSTANTS.tolist():
        columns = columns_of(np.exp(-lag / constant))
        found, norm = nnls(columns * weight[:, None], value * weight)
        fits.append((norm**2, constant, found.tolist()))
    misfit, constant, found = min(fits)
    return found, constant, misfit


def _points(facts: Sequence[RunFacts]) -> tuple[Floats, Floats, Floats]:
    if not facts:
        return np.empty(0), np.empty(0), np.empty(0)
    found = np.stack([item.curve.points for item in facts])
    found[:, :BIN_STEPS] -= max(_typical([item.batch_loss for item in facts], 0.0), 0.0)
    return _medians(found)


def _medians(found: Floats) -> tuple[Floats, Floats, Floats]:
    """Lags, medians over runs and weights of those of :data:`POINTS` that a third of the runs reaches."""
    count = np.isfinite(found).sum(axis=0)
    kept = count >= max(1, len(found) // 3)
    return POINTS[kept], np.nanmedian(found[:, kept], axis=0), np.sqrt(count[kept])


def delay_of(facts: Sequence[RunFacts]) -> float:
    """Median delay over runs, 0 where at least half of them are not late."""
    found = [item.curve.delay_steps for item in facts]
    return float(np.median([delay for delay in found if delay])) if 2 * sum(map(bool, found)) > len(found) else 0.0


def delay_spread_of(facts: Sequence[RunFacts]) -> float:
    """Robust standard deviation over the late runs of the logarithm of the delay, at most 1."""
    found = np.array([item.curve.delay_steps for item in facts if item.curve.delay_steps])
    return min(robust_sd(np.log(found)), 1.0) if delay_of(facts) and len(found) > 1 else 0.0


def misfits(cells: Sequence[Cell]) -> Floats:
    """Misfit of the path of each cell with each of :data:`HEALING_RATES`, shape (cells, rates).

    Relative to the cell's mean square, so that a disaster weighs no more than a small fault.
    """
    found = np.empty((len(cells), len(HEALING_RATES)))
    for row, cell in enumerate(cells):
        scale = max(float(np.mean(_points(cell.facts)[1] ** 2)), VISIBLE**2)
        found[row] = [fit_path(cell.facts, rate).misfit / scale for rate in HEALING_RATES.tolist()]
    return found


def gradient_per_excess(cell: Cell, rate: float) -> float:
    """a of √(1 + a x): (norm² - 1) / x, for a kick x of 3 % or more in the first steps; NaN for a lesser one."""
    kick = fit_path(cell.facts, rate).kicked(EARLY_LAGS, rate)
    early = _typical([item.log_grad_early for item in cell.facts], math.nan)
    return (math.exp(2.0 * early) - 1.0) / kick if kick >= VISIBLE_KICK and early > 0.0 else math.nan


# --- one cell --------------------------------------------------------------------------------------------------------


def response_of(facts: Sequence[RunFacts], rate: float, per_excess: float) -> dict[str, float]:
    """The fields of :class:`Response` that are measured in runs which do not break at once."""
    path = fit_path(facts, rate)
    strengths = strengths_of(facts, path, rate)
    peak = max(path.jump, path.floor)
    by_kick = 0.5 * math.log1p(per_excess * path.kicked(EARLY_LAGS, rate))
    early = _typical([item.log_grad_early for item in facts], 0.0) - by_kick
    lasting = _typical([item.log_grad_lasting for item in facts], 0.0)
    return {
        "kick": path.kick,
        "jump": path.jump,
        "floor": path.floor,
        "time_constant_steps": path.time_constant_steps,
        "delay_steps": path.delay_steps,
        "delay_spread": delay_spread_of(facts),
        "spread": min(robust_sd(np.log(strengths)), 1.0) if peak >= VISIBLE and len(strengths) > 2 else 0.0,
        "wobble": _typical([robust_sd(strays_of(item)) for item in facts], 0.0),
        "batch_loss": max(0.0, _typical([item.batch_loss for item in facts], 0.0)),
        "loss_onset": max(0.0, _typical([item.loss_onset for item in facts], 0.0)),
        "grad_norm_onset": math.exp(_typical([item.log_grad_onset for item in facts], 0.0)),
        "grad_norm_early": math.exp(early),
        "grad_norm_lasting": math.exp(lasting),
        "worker_spread": math.exp(_typical([item.log_worker_spread for item in facts], 0.0)),
        "update_rms": math.exp(_typical([item.log_update for item in facts], 0.0)),
    }


def strengths_of(facts: Sequence[RunFacts], path: ExcessPath, rate: float) -> Floats:
    """Factors from the path to each run, by least squares from the second bin on, over that of the median run."""
    found = []
    for item in facts:
        kept = item.curve.lag >= BIN_STEPS
        own = replace(path, delay_steps=item.curve.delay_steps) if path.delay_steps else path
        model = own.at(item.curve.lag[kept].astype(float), rate)
        power = float(model @ model)
        if power > 0.0 and len(model) > 5:
            found.append(float(item.curve.excess[kept] @ model) / power)
    typical = max(float(np.median(found)), WEAKEST) if found else 1.0
    return np.maximum(np.array(found) / typical, WEAKEST)


def strays_of(item: RunFacts) -> Floats:
    """Distance of a run from its own way, a running median of :data:`OWN_WAY` judgements, once it has left its twin."""
    from scipy.ndimage import median_filter

    excess = item.curve.excess[item.curve.lag >= LEFT_STEPS]
    return excess - median_filter(excess, OWN_WAY, mode="nearest") if len(excess) > OWN_WAY else np.empty(0)


def wobble_correlation_steps(cell: Cell) -> float:
    """Median over runs of the memory of the way they stray, steps; NaN where they do not."""
    strays = [strays_of(item) for item in cell.facts]
    found = [BIN_STEPS * memory_steps(stray) for stray in strays if len(stray) > 20 and robust_sd(stray) > 0.001]
    return float(np.median(found)) if found else math.nan


def _typical(values: Sequence[float], otherwise: float) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return float(np.median(finite)) if finite else otherwise


# --- all cells -------------------------------------------------------------------------------------------------------


def cells_of(pairs: Sequence[Pair]) -> dict[tuple[str, str], Cell]:
    """(fault, severity) → its runs; hardware faults and combinations are left out."""
    found: dict[tuple[str, str], Cell] = {}
    for pair in pairs:
        # The parameters of hardware faults are physical, and those of the injected fault.
        if pair.run.fault not in HARDWARE_FAULTS and "+" not in pair.run.fault and pair.run.severity in SEVERITIES:
            found.setdefault((pair.run.fault, pair.run.severity), Cell([])).pairs.append(pair)
    return dict(sorted(found.items(), key=lambda item: (item[0][0], SEVERITIES.index(item[0][1]))))


def fit_shared(cells: Mapping[tuple[str, str], Cell]) -> dict[str, Estimate]:
    """The numbers that all faults share, by the name of the parameter: sums and medians over cells.

    For the intervals cells are resampled: a fault stands for others of its kind.
    """
    chosen = [cell for cell in cells.values() if cell.facts]
    if not chosen:
        return {}
    misfit = misfits(chosen)

    def best(rows: Sequence[Floats]) -> float:
        return float(HEALING_RATES[int(np.argmin(np.sum(rows, axis=0)))])

    rate = best([*misfit])
    records = sum(len(item.curve.lag) for cell in chosen for item in cell.facts)
    found = {
        "healing_rate": over_runs([*misfit], best, records),
        "gradient_per_excess": median_over_runs([gradient_per_excess(cell, rate) for cell in chosen], records),
        "wobble_correlation_steps": median_over_runs([wobble_correlation_steps(c) for c in chosen], records),
    }
    runs = sum(len(cell.facts) for cell in chosen)
    return {name: replace(estimate, runs=runs) for name, estimate in found.items() if estimate is not None}


def fit_response(cell: Cell, rate: float, per_excess: float) -> dict[str, Estimate]:
    """All fields of one cell, each with its interval."""
    value = response_of(cell.facts, rate, per_excess)
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(FEW_DRAWS):
        picks = rng.integers(len(cell.facts), size=len(cell.facts)).tolist() if cell.facts else []
        draws.append(response_of([cell.facts[k] for k in picks], rate, per_excess))
    records = sum(len(item.curve.lag) for item in cell.facts)
    fitted = {
        name: Estimate(number, *interval([draw[name] for draw in draws]), len(cell.facts), records)
        for name, number in value.items()
    }
    for name, hits in cell.shares.items():
        fitted[name] = Estimate(sum(hits) / len(hits), *binomial_interval(sum(hits), len(hits)), len(hits), len(hits))
    assert {*fitted} == {item.name for item in fields(Response)}
    return fitted
