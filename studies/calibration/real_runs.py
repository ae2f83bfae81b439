"""Real runs as the calibration needs them: healthy steps, pairs of faulty run and twin, and estimates over runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation.truth import Truth, truth_of
from rmetric.records import NAN_LOSS, Run
from rmetric.robust.reference import NORMAL

T = TypeVar("T")
Floats = NDArray[np.float64]
DRAWS = 200
"""Bootstrap resamples of a number that is quickly worked out."""
FEW_DRAWS = 40
"""The same of one that is not."""
WARM_UP_STEPS = 40
"""First steps of a run, in which everything still moves."""
TREND_STEPS = 61
"""Width of the running median that is taken for the trend."""
SETTLED = 5
"""Steps after the onset within which a run that breaks at once has broken."""
COLLAPSED_LOSS = 0.02
"""Distance from ln(vocabulary), relative, within which a model answers every token alike."""
COLLAPSED_GRADIENT = 0.01
"""Gradient norm of such a model, at most, over the median one before: next to nothing gets through."""


@dataclass(frozen=True)
class Estimate:
    """A fitted number with its 95 % bootstrap interval over runs."""

    value: float
    low: float
    high: float
    runs: int
    records: int
    """Records that the number rests on."""


def over_runs(
    items: Sequence[T], statistic: Callable[[Sequence[T]], float], records: int, draws: int = DRAWS
) -> Estimate | None:
    """A statistic of some runs, and its interval from resampled runs; ``None`` if it is undefined.

    >>> found = over_runs([1.0, 2.0, 3.0], lambda values: float(np.median(values)), records=3)
    >>> found.value, found.low, found.high, found.runs
    (2.0, 1.0, 3.0, 3)
    """
    value = statistic(items) if items else math.nan
    if not math.isfinite(value):
        return None
    rng = np.random.default_rng(0)
    found = [statistic([items[k] for k in rng.integers(len(items), size=len(items))]) for _ in range(draws)]
    low, high = interval(found)
    return Estimate(value, low, high, len(items), records)


def median_over_runs(values: Sequence[float], records: int) -> Estimate | None:
    """The median over runs of a number of each; runs in which it is undefined are left out."""
    return over_runs([value for value in values if math.isfinite(value)], lambda part: float(np.median(part)), records)


def interval(found: Sequence[float]) -> tuple[float, float]:
    """2.5 % and 97.5 % quantiles of the finite ones."""
    finite = np.array([value for value in found if math.isfinite(value)])
    return tuple(np.quantile(finite, [0.025, 0.975]).tolist()) if len(finite) else (math.nan, math.nan)


@dataclass(frozen=True)
class Pair:
    """A faulty (or disturbed) run beside the healthy one that it was forked from."""

    run: Run
    twin: Run | None
    """``None`` where the twin left no log: then there is the held-out loss alone."""
    onset: int
    truth: Truth

    @cached_property
    def held_out(self) -> tuple[NDArray[np.int64], Floats]:
        """Steps since the onset and relative excess of the held-out loss, from the onset on; finite values only."""
        step, own, twin = held_out_losses(self.run)
        with np.errstate(invalid="ignore", divide="ignore"):
            excess = own / twin - 1.0
        kept = (step >= self.onset) & np.isfinite(excess)
        return step[kept] - self.onset, excess[kept]

    def ratio(self, signal: str) -> tuple[NDArray[np.int64], Floats]:
        """Steps since the onset and a signal over the twin's; what is not finite and above 0 is NaN."""
        if self.twin is None:
            return np.empty(0, np.int64), np.empty(0)
        own, other = self.run.observations, self.twin.observations
        steps, at, there = np.intersect1d(own.step, other.step, return_indices=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = own[signal][at] / other[signal][there]
        ratio = np.where(np.isfinite(ratio) & (ratio > 0.0), ratio, np.nan)
        kept = steps >= self.onset
        return steps[kept] - self.onset, ratio[kept]

    @property
    def duration_steps(self) -> int:
        """Steps that the fault lasts; 0: to the end."""
        parameters = self.run.injection.get("params") or {}
        return int(parameters.get("duration_steps") or 0)

    @property
    def breaks_at_once(self) -> bool:
        """Whether the loss is not finite within the first steps."""
        failed = self.truth.failure_step
        return self.truth.reason == NAN_LOSS and failed is not None and failed - self.onset <= SETTLED

    @property
    def collapses_at_once(self) -> bool:
        """Whether it answers every token alike from the first steps on: loss ln(vocabulary), gradient all but 0."""
        observations = self.run.observations
        first = (observations.step > self.onset) & (observations.step <= self.onset + SETTLED)
        vocabulary = self.run.config.get("vocabulary")
        if not isinstance(vocabulary, int) or vocabulary < 2 or not first.any():
            return False
        off = np.abs(observations["training_loss"][first] / math.log(vocabulary) - 1.0)
        usual = np.nanmedian(observations["grad_norm"][observations.step < self.onset])
        return bool(
            np.median(off) < COLLAPSED_LOSS
            and np.median(observations["grad_norm"][first]) <= COLLAPSED_GRADIENT * usual
        )


def held_out_losses(run: Run) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Steps, and the held-out losses of a run and of its twin, on which it was judged; empty if the log lacks them."""
    event = run.first("HELD_OUT") or {"steps": [], "held_out": [], "twin": []}
    own, twin = (np.array([math.nan if x is None else x for x in event[key]], float) for key in ("held_out", "twin"))
    return np.array(event["steps"], np.int64), own, twin


def pairs(runs: Sequence[Run]) -> list[Pair]:
    """The faulty runs of a study that have an onset and a twin among the runs."""
    by_name = {run.name: run for run in runs}
    found = []
    for run in runs:
        truth, twin = truth_of(run), by_name.get(str(run.config.get("twin")))
        if not run.is_control and truth.onset is not None and twin is not None:
            found.append(Pair(run, twin, truth.onset, truth))
    return found


def disturbed(runs: Sequence[Run], kind: str) -> list[Pair]:
    """Control runs with a benign disturbance of one kind."""
    found = []
    for run in runs:
        disturbance = run.config.get("disturbance")
        if isinstance(disturbance, dict) and disturbance.get("type") == kind and disturbance.get("step"):
            found.append(Pair(run, None, int(disturbance["step"]), truth_of(run)))
    return found


def controls(runs: Sequence[Run]) -> list[Run]:
    """Runs without a fault, the disturbed ones among them."""
    return [run for run in runs if run.is_control]


def undisturbed(runs: Sequence[Run]) -> list[Run]:
    """Runs that nothing happens to."""
    return [run for run in controls(runs) if not run.config.get("disturbance")]


def after_warm_up(run: Run, signal: str) -> Floats:
    """Finite values above 0 of a signal after the warm-up."""
    values = run.observations[signal][run.observations.step > WARM_UP_STEPS]
    return values[np.isfinite(values) & (values > 0.0)]


def residual(values: Floats) -> Floats:
    """Logarithm of a signal less its trend, a running median of :data:`TREND_STEPS` values."""
    from scipy.ndimage import median_filter

    logarithm = np.log(values)
    return np.asarray(logarithm - median_filter(logarithm, TREND_STEPS, mode="nearest"))


def robust_sd(values: Floats) -> float:
    """1.4826 times the median distance from the median; NaN of nothing."""
    return float(NORMAL * np.median(np.abs(values - np.median(values)))) if len(values) else math.nan
