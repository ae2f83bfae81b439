"""Measurements of one faulty run beside its twin: the course of its excess loss, and ratios of its signals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from studies.calibration.real_runs import SETTLED, Pair

Floats = NDArray[np.float64]
TIME_CONSTANTS = np.geomspace(5.0, 300.0, 16)
"""Candidates for τ. Not more than 300 steps: real runs are watched for 180 to 540 steps after the onset, and a longer
time constant would settle far beyond anything that was seen."""
BIN_STEPS = 5
"""Real runs are judged every 5 steps."""
EARLY_STEPS = (1, 2)
"""Steps after the onset in which the first gradients are taken: a learning rate shows one step late."""
LASTING_STEPS = 100
"""The lasting gradient is that of the second half of the activity, or of the first 100 steps of it."""
CEILING = 5.0
"""Excess beyond which it is all the same, relative."""
DELAYS = np.arange(10.0, 301.0, 5.0)
"""Candidates for the delay of a run."""
LATE_RISE = 0.1
"""Least rise of the excess after a delay, relative to the loss."""
LEFT_STEPS = 20
"""Steps after which a run that leaves its twin's path has left it."""
LEFT = 0.03
"""Excess over that of the first :data:`LEFT_STEPS` steps beyond which a late run is on its way."""
LATE_GAIN = 0.8
"""A run is late if two levels leave at most this share of the distances that a path without a delay leaves."""
BINS = 120
"""Number of bins of :data:`BIN_STEPS` steps each, in which the held-out loss is judged."""
POINTS = np.concatenate([np.arange(BIN_STEPS), BIN_STEPS * np.arange(BINS) + 2.0])
"""Steps since the onset at which runs are compared: the first ones by the training loss, then bins of held-out loss."""


class Curve:
    """Excess of one run: steps since the onset, and values."""

    def __init__(self, pair: Pair) -> None:
        lag, excess = pair.held_out
        self.lag, self.excess = lag, np.clip(excess, -1.0, CEILING)
        train_lag, ratio = pair.ratio("training_loss")
        self.train_lag, self.train = train_lag, np.clip(ratio - 1.0, -1.0, CEILING)

    def batch_loss(self, duration_steps: int) -> float:
        """Mean excess of the training loss less that of the held-out loss, while the fault is on."""
        end = min(duration_steps or LASTING_STEPS, LASTING_STEPS)
        own = self.train[(self.train_lag >= SETTLED) & (self.train_lag < end)]
        seen = self.excess[(self.lag >= SETTLED) & (self.lag < end)]
        return float(np.nanmean(own) - seen.mean()) if np.isfinite(own).any() and len(seen) else math.nan

    @cached_property
    def points(self) -> Floats:
        """Excess at :data:`POINTS`, of the training loss in the first steps, then of the held-out loss; NaN: none."""
        found = np.full(len(POINTS), np.nan)
        early = self.train_lag < BIN_STEPS
        found[self.train_lag[early]] = self.train[early]
        number = self.lag // BIN_STEPS
        kept = number < BINS
        found[BIN_STEPS + number[kept]] = self.excess[kept]
        return found

    @cached_property
    def delay_steps(self) -> float:
        """Steps until the excess leaves its first level for good; 0 where it moves from the onset on.

        Two medians with the least sum of distances over all :data:`DELAYS` (runs that break overshoot) say whether
        there are two levels; a slow start belongs to the way from one to the other.
        """
        kept = self.lag >= BIN_STEPS
        lag, excess = self.lag[kept], self.excess[kept]
        best, late = LATE_GAIN * _distance_without_delay(lag, excess), False
        for candidate in DELAYS[lag.max(initial=0) > DELAYS].tolist():
            before, after = excess[lag < candidate], excess[lag >= candidate]
            if min(len(before), len(after)) < 2:
                continue
            low, high = float(np.median(before)), float(np.median(after))
            distance = float(np.abs(before - low).sum() + np.abs(after - high).sum())
            if distance < best and high - low >= LATE_RISE:
                best, late = distance, True
        if not late:
            return 0.0
        first = float(np.median(excess[lag <= LEFT_STEPS]))
        return float(lag[excess <= first + LEFT].max(initial=0))

    @property
    def level_before_delay(self) -> float:
        """Median excess until then."""
        return float(np.median(self.excess[self.lag <= self.delay_steps]))

    @property
    def points_after_delay(self) -> Floats:
        """The held-out loss at :data:`POINTS` after the delay; the first steps are NaN."""
        found = np.full(len(POINTS), np.nan)
        since = self.lag - int(self.delay_steps)
        kept = (since >= 0) & (since < BINS * BIN_STEPS)
        found[BIN_STEPS + since[kept] // BIN_STEPS] = self.excess[kept]
        return found


def _distance_without_delay(lag: NDArray[np.int64], excess: Floats) -> float:
    """Sum of the distances from the best path that leaves its first level at the onset."""
    if not len(lag):
        return 0.0
    left = np.exp(-lag / TIME_CONSTANTS[:, None])
    found = []
    for column in left:
        columns = np.column_stack([column, 1.0 - column])
        levels = np.linalg.lstsq(columns, excess, rcond=None)[0]
        found.append(float(np.abs(excess - columns @ levels).sum()))
    return min(found)


@dataclass
class RunFacts:
    """One run: medians of ratios to the twin, and its excess."""

    curve: Curve
    batch_loss: float
    loss_onset: float
    log_grad_onset: float
    log_grad_early: float
    log_grad_lasting: float
    log_worker_spread: float
    log_update: float

    @classmethod
    def of(cls, pair: Pair) -> RunFacts:
        """Measure a run."""
        curve = Curve(pair)
        lag, norm = pair.ratio("grad_norm")
        end = min(pair.duration_steps or LASTING_STEPS, LASTING_STEPS)
        lag_s, sigma = pair.ratio("sigma_sq")
        both = np.intersect1d(lag, lag_s, return_indices=True)
        spread = 0.5 * np.log(sigma[both[2]]) - np.log(norm[both[1]])
        lag_u, update = pair.ratio("update_rms")
        _, rate = pair.ratio("learning_rate")
        return cls(
            curve=curve,
            batch_loss=curve.batch_loss(pair.duration_steps),
            loss_onset=_median(curve.train, curve.train_lag, 0, 0),
            log_grad_onset=_median(np.log(norm), lag, 0, 0),
            log_grad_early=_median(np.log(norm), lag, *EARLY_STEPS),
            log_grad_lasting=_median(np.log(norm), lag, end // 2, end - 1),
            log_worker_spread=_median(spread, both[0], 1, end - 1),
            log_update=_median(np.log(update / rate), lag_u, 2, min(end, 20) - 1),
        )


def _median(values: Floats, lag: NDArray[np.int64], first: float, last: float) -> float:
    part = values[(lag >= first) & (lag <= last)]
    part = part[np.isfinite(part)]
    return float(np.median(part)) if len(part) else math.nan
