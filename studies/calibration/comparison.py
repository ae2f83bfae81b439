"""Table 15: simulated runs against real ones that nothing was fitted to: noise, faults, detectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.held_out import BOUNDS, held_out
from rmetric.evaluation.scores import Score
from rmetric.evaluation.split import half_of
from rmetric.evaluation.truth import truth_of
from rmetric.faults import FAULTS, SEVERITIES
from rmetric.records import Run
from rmetric.reporting.table import Cell, Column, Table
from studies.calibration.real_runs import over_runs, robust_sd, undisturbed
from studies.catalogue import Inputs, Part, simulated_and_real, table

Floats = NDArray[np.float64]
SIGNALS = {
    "training_loss": np.mean,
    "grad_norm": np.max,
    "update_rms": np.max,
    "sigma_sq": np.max,
    "step_time_s": np.mean,
}
"""Signal → how a record of several steps sums them up."""
TREND_RECORDS = 15
SKIPPED_SHARE = 0.1
"""Share of a run in which its warm-up lies."""
FEWEST_FAILED = 3
"""Fewer runs say nothing of a median: a bootstrap over runs would leave more than 5 % of its resamples without any."""
TOLERANCE = 0.2
"""Relative distance within which two numbers are alike, whatever the interval."""
STATISTICS = {
    "standard deviation": robust_sd,
    "1 % quantile": lambda noise: float(np.quantile(noise, 0.01)),
    "99 % quantile": lambda noise: float(np.quantile(noise, 0.99)),
}
"""Of the logarithm of a signal less its trend."""


@dataclass(frozen=True)
class Compared:
    """One number, simulated and real."""

    of: tuple[str, ...]
    """What it is a number of, such as (fault, severity)."""
    statistic: str
    simulated: Score
    real: Score
    """With an interval over runs, where there is one."""

    @property
    def matches(self) -> bool | None:
        """Whether the simulated one lies in the real one's interval or near it; ``None`` if one is undefined."""
        if not (self.simulated.defined and self.real.defined):
            return None
        near = abs(self.simulated.value - self.real.value) <= TOLERANCE * abs(self.real.value)
        return near or (self.real.has_interval and self.real.low <= self.simulated.value <= self.real.high)


@dataclass(frozen=True)
class Comparison:
    """All of it."""

    noise: list[Compared]
    """Of (signal,)."""
    faults: list[Compared]
    """Of (fault, severity): ``failed`` and ``recovered``, shares of the decided runs; ``incubation``, median steps."""
    detectors: list[Compared]
    """Of (detector,): strict F1 at the budget on the score half."""
    rank_correlation: Score
    """Spearman's, of the detectors' F1; NaN for fewer than three."""
    every: int
    """Steps a record: real records are summed up as simulated ones are."""
    runs: tuple[int, int]
    """Simulated runs, and real ones of the score half."""


def compare(simulated: Sequence[Run], real: Sequence[Run]) -> Comparison:
    """Noise and faults; the detectors are left empty (:func:`with_detectors`).

    All runs are given; of the real ones the score half is compared.
    """
    other = half_of(real, "score")
    every = next((int(run.config.get("log_every_n_steps") or 1) for run in simulated), 1)
    nothing = Score.undefined("no detector was compared")
    return Comparison(
        compare_noise(simulated, other, every), compare_faults(simulated, other), [], nothing, every,
        (len(simulated), len(other)),
    )  # fmt: skip


def with_detectors(comparison: Comparison, simulated: Evaluator, real: Evaluator) -> Comparison:
    """The same with the detectors' scores and the correlation of their ranks."""
    rows = compare_detectors(simulated, real)
    return replace(comparison, detectors=rows, rank_correlation=rank_correlation(rows))


# --- noise -----------------------------------------------------------------------------------------------------------


def compare_noise(simulated: Sequence[Run], real: Sequence[Run], every: int) -> list[Compared]:
    """Noise of healthy runs at the same cadence."""
    rows = []
    for signal in SIGNALS:
        ours, theirs = (
            [noise for noise in (noise_of(run, signal, every) for run in undisturbed(runs)) if len(noise)]
            for runs in (simulated, real)
        )
        for name, statistic in STATISTICS.items():
            both = [_pooled(part, statistic) for part in (ours, theirs)]
            rows.append(Compared((signal,), name, *both))
    return rows


def noise_of(run: Run, signal: str, every: int) -> Floats:
    """Logarithm of a signal, in records of that many steps, less its trend."""
    from scipy.ndimage import median_filter

    values, own = run.observations[signal], int(run.config.get("log_every_n_steps") or 1)
    size = max(1, every // own)
    count = len(values) // size
    with np.errstate(invalid="ignore"):
        grouped = SIGNALS[signal](values[: count * size].reshape(count, size), axis=1)  # type: ignore[operator]
    grouped = grouped[math.ceil(SKIPPED_SHARE * count) :]
    grouped = grouped[np.isfinite(grouped) & (grouped > 0.0)]
    if len(grouped) < 2 * TREND_RECORDS:
        return np.empty(0)
    logarithm = np.log(grouped)
    return np.asarray(logarithm - median_filter(logarithm, TREND_RECORDS, mode="nearest"))


def _pooled(noise: Sequence[Floats], statistic) -> Score:
    found = over_runs(noise, lambda part: statistic(np.concatenate(part)), sum(map(len, noise)), draws=100)
    return Score(found.value, found.low, found.high) if found else Score.undefined("no healthy run measures it")


# --- faults ----------------------------------------------------------------------------------------------------------


def compare_faults(simulated: Sequence[Run], real: Sequence[Run]) -> list[Compared]:
    """Outcomes of the runs, by fault and severity, where both kinds of study have some."""
    ours, theirs = _outcomes(simulated), _outcomes(real)
    rows = []
    for key in (key for key in ours if key in theirs):
        a, b = ours[key], theirs[key]
        rows += [Compared(key, kind, _share(a, kind), _share(b, kind)) for kind in ("failed", "recovered")]
        rows.append(Compared(key, "incubation", median_incubation(a), median_incubation(b)))
    return rows


Outcomes = list[tuple[str, int | None]]
"""Of each run: kind and incubation."""


def _outcomes(runs: Sequence[Run]) -> dict[tuple[str, str], Outcomes]:
    """(fault, severity) → its runs that were decided, in the order of the registry."""
    found: dict[tuple[str, str], Outcomes] = {}
    for run in runs:
        truth = truth_of(run)
        if not run.is_control and truth.kind in ("failed", "recovered"):
            found.setdefault((run.fault, run.severity), []).append((truth.kind, truth.incubation))
    names = [*FAULTS]

    def place(key: tuple[str, str]) -> tuple[int, str, int]:
        fault, severity = key
        at = names.index(fault) if fault in names else len(names)
        return at, fault, SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)

    return {key: found[key] for key in sorted(found, key=place)}


def _share(outcomes: Outcomes, kind: str) -> Score:
    """Share with its exact interval: none of eight runs is no proof that none ever does."""
    return Score.share(sum(found == kind for found, _ in outcomes), len(outcomes))


def median_incubation(outcomes: Outcomes) -> Score:
    """Median steps from onset to failure, of the failed runs; undefined for fewer than three."""
    steps = [float(after) for kind, after in outcomes if kind == "failed" and after is not None]
    if 0 < len(steps) < FEWEST_FAILED:
        return Score.undefined(f"fewer than {FEWEST_FAILED} runs failed")
    found = over_runs(steps, lambda part: float(np.median(part)), len(steps))
    return Score(found.value, found.low, found.high) if found else Score.undefined("no run failed")


# --- detectors -------------------------------------------------------------------------------------------------------


def compare_detectors(simulated: Evaluator, real: Evaluator) -> list[Compared]:
    """Strict F1 on each study's score half, at thresholds fitted to the budget on its fit half; best real one first."""
    ours = {found.name: found.scores["f1"] for found in held_out(simulated)}
    theirs = {found.name: found.scores["f1"] for found in held_out(real)}
    names = [name for name in theirs if name in ours and name not in BOUNDS]
    names.sort(key=lambda name: -theirs[name].value if theirs[name].defined else math.inf)
    return [Compared((name,), "F1", ours[name], theirs[name]) for name in names]


def rank_correlation(rows: Sequence[Compared]) -> Score:
    """Spearman's rank correlation of the simulated and the real scores that are defined, with a bootstrap interval."""
    from scipy.stats import rankdata

    known = [(row.simulated.value, row.real.value) for row in rows if row.simulated.defined and row.real.defined]

    def correlation(part: Sequence[tuple[float, float]]) -> float:
        ranks = [rankdata(column) for column in zip(*part, strict=True)]
        if any(len(np.unique(rank)) < 2 for rank in ranks):
            return math.nan
        return float(np.corrcoef(*ranks)[0, 1])

    if len(known) < 3:
        return Score.undefined("fewer than three detectors have a score in both studies")
    found = over_runs(known, correlation, len(known))
    return Score(found.value, found.low, found.high) if found else Score.undefined("all scores are equal")


# --- tables ----------------------------------------------------------------------------------------------------------

ANSWERS = {True: "yes", False: "no", None: "–"}
"""Whether two numbers are alike."""
RUNS = (
    "{simulated} simulated runs, {real} real ones (even repetitions, to which nothing was fitted); 95 % intervals over "
    f"runs. Alike: within the real interval, or within {100 * TOLERANCE:.0f} %."
)


@lru_cache(maxsize=2)
def compared(simulated: Evaluator, real: Evaluator) -> Comparison:
    """Two evaluated studies, with the detectors that both have scores of."""
    return with_detectors(compare(simulated.study.runs, real.study.runs), simulated, real)


def _compared(inputs: Inputs) -> Mapping[str, Comparison]:
    return {name: compared(*pair) for name, pair in simulated_and_real(inputs).items()}


def tables(comparison: Comparison) -> list[Table]:
    """Noise, faults, and detectors if some were compared."""
    found = (description.table({"": comparison}) for description in (noise, faults, detectors))
    return [each for each in found if each is not None]


def _pairs(prefix: str, digits: int, title: str = "") -> list[Column]:
    """A number of simulated runs, the same of real ones, and whether they are alike."""
    return [
        Column(f"{prefix}simulated", f"{title}simulated", digits, interval=False),
        Column(f"{prefix}real", f"{title}real", digits),
        Column(f"{prefix}alike", "Alike"),
    ]


def _cells(row: Compared, prefix: str) -> dict[str, Cell]:
    return {
        f"{prefix}simulated": row.simulated,
        f"{prefix}real": row.real,
        f"{prefix}alike": ANSWERS[row.matches],
    }


def _facts(comparison: Comparison) -> dict[str, str]:
    simulated, real = comparison.runs
    return {"simulated": f"{simulated:,}", "real": f"{real:,}", "every": str(comparison.every)}


@table(
    "table_15_simulated_vs_real_noise",
    "Simulated against real, noise of healthy runs",
    f"Logarithm of a signal less its trend (running median of {TREND_RECORDS} records), in records of {{every}} steps: "
    f"means of loss and step time, largest values of the others. {RUNS}",
    [Column("signal", "Signal"), Column("statistic", "Statistic"), *_pairs("", 4)],
    needs=_compared,
)
def noise(comparison: Comparison) -> Part:
    """One row a signal and statistic."""
    rows = [{"signal": row.of[0], "statistic": row.statistic, **_cells(row, "")} for row in comparison.noise]
    return Part(rows, _facts(comparison), _unlike(comparison.noise))


@table(
    "table_15b_simulated_vs_real_faults",
    "Simulated against real, what becomes of a fault",
    f"Shares of the decided runs; incubation: median steps from onset to failure, of failed runs. {RUNS}",
    [
        Column("fault", "Fault"),
        Column("severity", "Severity"),
        *_pairs("failed_", 2, "Failed, "),
        *_pairs("recovered_", 2, "Recovered, "),
        *_pairs("incubation_", 0, "Incubation (steps), "),
    ],
    needs=_compared,
)
def faults(comparison: Comparison) -> Part:
    """One row a fault and severity."""
    rows: dict[tuple[str, ...], dict[str, Cell]] = {}
    for row in comparison.faults:
        fault, severity = row.of
        rows.setdefault(row.of, {"fault": fault, "severity": severity}).update(_cells(row, f"{row.statistic}_"))
    return Part([*rows.values()], _facts(comparison), _unlike(comparison.faults))


@table(
    "table_15c_simulated_vs_real_detectors",
    "Simulated against real, detectors",
    "Strict F1 on the score half of each study, at the threshold that keeps one false alarm per 10,000 healthy steps "
    f"on its fit half; the best real one first. {RUNS} The rank correlation's interval is over detectors.",
    [Column("detector", "Detector"), *_pairs("", 3)],
    needs=_compared,
)
def detectors(comparison: Comparison) -> Part | None:
    """One row a detector, and the correlation of their ranks; none if no detectors were compared."""
    if not comparison.detectors:
        return None
    rows: list[dict[str, Cell]] = [{"detector": row.of[0], **_cells(row, "")} for row in comparison.detectors]
    ranks: dict[str, Cell] = {"detector": "rank correlation (Spearman)", "real": comparison.rank_correlation}
    return Part([*rows, ranks], _facts(comparison), _unlike(comparison.detectors))


def _unlike(rows: Sequence[Compared]) -> list[str]:
    """One note that names what does not match."""
    known = [row for row in rows if row.matches is not None]
    odd = [f"{' '.join(row.of)} ({row.statistic})" for row in known if not row.matches]
    if not known:
        return ["Nothing could be compared."]
    if not odd:
        return [f"All {len(known)} numbers match."]
    return [f"{len(known) - len(odd)} of {len(known)} numbers match. Those that do not: {', '.join(odd)}."]
