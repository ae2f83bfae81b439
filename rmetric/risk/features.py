"""Features of the risk model: causal numbers made of a run's observations alone.

No feature knows the fault, the label, the seed, the place in the study or a later record. All are bounded, so that no
single value can carry the model away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rmetric.measurements import Observation
from rmetric.records import Observations
from rmetric.robust.reference import RobustReference, logarithm

READS = (
    "training_loss", "grad_norm", "update_rms", "sigma_sq", "step_time_s", "step_time_max_s", "learning_rate",
    "validation_loss", "uniform_gap", "non_finite_count", "lambda", "hardware_events",
)  # fmt: skip
"""Measurements it reads, by log name. ``delta_l`` is left out, as it is made of different losses in different logs."""

WINDOW, WARM_UP = 64, 32
"""Records of the reference, as in the robust z-score detector."""
EVALUATIONS, EVALUATIONS_WARM_UP = 16, 4
"""The same for validation losses, of which there are fewer."""
REFERENCE_CLIP = 5.0
"""Scales from the median at which a value enters the reference, so that an outlier never raises its own bar."""
SATURATED = 8.0
"""Largest size of a z-score on the asinh scale (z ≈ 1,500); an infinite value stands there."""
ALLOWANCE, SUM_CLIP, SUM_LIMIT = 0.5, 4.0, 64.0
"""Cumulative sum: z above 0.5 adds up, at most 4 a record, to at most 64; it takes 128 quiet records to forget that."""
MEMORY = 0.97
"""Share of a peak that is left after one record: a third of it after 36."""
ANOMALY_Z, QUIET_RECORDS = 6.0, 50
"""A record whose z exceeds this, or with a broken number or a hardware event, is anomalous; 50 without one end it."""
LEARNED_NATS, UNIFORM_NATS = 0.1, 0.1
"""A model that was this far below ln(vocabulary), and is now this near to it, answers every token alike."""
LOSS_UNIT_NATS, LARGEST_LOSS = 0.02, 1e6
"""Unit of differences of losses (the floor of their reference), and the largest one that is averaged."""
LARGEST_EXCESS = 1.5
"""Relative excess of a loss on the log scale at which it saturates: 4.5 times the lowest."""

SCALES: dict[str, tuple[str, float]] = {
    "loss": ("training_loss", 0.02),
    "gradient": ("grad_norm", 0.25),
    "update": ("update_rms", 0.05),
    "sigma_sq": ("sigma_sq", 0.5),
    "step_time": ("step_time_s", 0.05),
    "step_time_max": ("step_time_max_s", 0.1),
    "learning_rate": ("learning_rate", 0.1),
    "lambda": ("lambda", 0.1),
}
"""Signal → measurement and smallest scale of its reference: nats for the loss, ln units for all others (ln(1 + λ)).

The floors of loss, gradient and update are those of the robust z-score detector; σ², a variance of norms, gets twice
that of the norm. Without one, clocks and constant schedules would have a scale of 0.
"""
TRACK = ("z", "peak", "trough", "sum")
FEATURES: tuple[str, ...] = (
    *(f"{signal}_{part}" for signal in SCALES for part in TRACK),
    "loss_excess", "loss_excess_z", "loss_slope", "loss_height",
    "validation_jump", "validation_excess",
    "uniform", "non_finite", "zero_gradient",
    "events_recent", "events_lasting",
    "anomaly_age", "anomaly_quiet",
)  # fmt: skip
"""Names, in the order of the columns.

``*_z``
    asinh of the robust z-score against the median and MAD of the last 64 records, in [−8, 8].
``*_peak``, ``*_trough``
    Largest and smallest ``z`` of late: fades by 3 % a record; at least, at most 0.
``*_sum``
    ln(1 + S) of the cumulative sum S = max(0, S + min(z, 4) − 0.5), S ≤ 64.
``loss_excess``
    ln(loss / lowest loss so far) of smoothed losses (over 4 and 32 records), in [0, 1.5].
``loss_excess_z``, ``loss_slope``
    Their difference, and that of the averages over 4 and 32 records, in units of 0.02 nats, on the asinh scale.
``loss_height``
    ``loss_excess`` over the largest it was of late, in [0, 1]: 1 on the way up, 0 once healed (or never risen by 2 %).
``validation_jump``, ``validation_excess``
    asinh of the robust z-score of the change between two evaluations; ln(validation loss / lowest so far). Held.
``uniform``, ``non_finite``, ``zero_gradient``
    1 for a loss of ln(vocabulary) after better ones, for a loss or gradient that is not finite, for a gradient or
    update of exactly 0; fades.
``events_recent``, ``events_lasting``
    ln(1 + number of hardware events), faded by 10 % and by 2 % a record. Where a log has λ and no such numbers, a
    change of λ is an event.
``anomaly_age``, ``anomaly_quiet``
    ln(1 + records since the anomaly began) and since its last anomalous record; 0 without an anomaly.

What was not measured, or cannot be compared yet, is neutral: 0, as if nothing had happened.
"""


class FeatureStream:
    """Features of one run, record by record.

    >>> stream = FeatureStream()
    >>> stream.update(Observation(1, training_loss=3.0)).shape == (len(FEATURES),)
    True
    """

    def __init__(self) -> None:
        self._tracks = [_Track(floor) for _, floor in SCALES.values()]
        self._excess = _Excess()
        self._validation = _Validation()
        self._signs = _Signs()
        self._events = _Events()
        self._anomaly = _Anomaly()

    def update(self, observation: Observation) -> NDArray[np.float64]:
        """Features of the next record, shape (F,)."""
        values = [observation[name] for name in READS]
        return np.array(self._next(values, observation.evaluated), dtype=np.float64)

    def extend(self, observations: Observations) -> NDArray[np.float64]:
        """Features of the next n records, shape (n, F); the same bits as n times :meth:`update`."""
        columns = [observations[name].tolist() for name in READS]
        rows = zip(zip(*columns, strict=True), observations.evaluated.tolist(), strict=True)
        table = [self._next(values, evaluated) for values, evaluated in rows]
        return np.array(table, dtype=np.float64).reshape(len(table), len(FEATURES))

    def _next(self, values: Sequence[float], evaluated: bool) -> list[float]:
        (loss, norm, update, sigma_sq, time_s, longest_s, rate, validation, gap, broken, lambda_, events) = values
        scaled = (
            loss,
            logarithm(norm),
            logarithm(update),
            logarithm(sigma_sq),
            logarithm(time_s),
            logarithm(longest_s),
            logarithm(rate),
        )
        row: list[float] = []
        highest = -math.inf
        for track, value in zip(self._tracks, (*scaled, logarithm(1.0 + lambda_)), strict=True):
            row += track.update(value)
            highest = max(highest, track.score)
        row += self._excess.update(loss)
        row += self._validation.update(validation, evaluated)
        row += self._signs.update(loss, norm, update, gap, broken)
        row += self._events.update(events, lambda_)
        odd = highest > ANOMALY_Z or self._signs.now or self._events.now
        row += self._anomaly.update(odd)
        return row


def features_of(observations: Observations) -> NDArray[np.float64]:
    """Features of a whole run, shape (n, F)."""
    return FeatureStream().extend(observations)


def _bounded(z: float) -> float:
    """A z-score on the asinh scale; 0 for one that is not known."""
    return 0.0 if math.isnan(z) else min(max(math.asinh(z), -SATURATED), SATURATED)


class _Track:
    """One signal against its own recent past: where it stands, how far it went of late, what has added up."""

    def __init__(self, floor: float) -> None:
        self._reference = RobustReference(window=WINDOW, warm_up=WARM_UP, floor=floor, clip=REFERENCE_CLIP)
        self.score = -math.inf
        self._peak = self._trough = self._sum = 0.0

    def update(self, value: float) -> tuple[float, float, float, float]:
        z = self._reference.update(value)
        known = not math.isnan(z)
        self.score = z if known else -math.inf
        place = _bounded(z)
        self._peak = max(place, MEMORY * self._peak)
        self._trough = min(place, MEMORY * self._trough)
        if known:
            self._sum = min(max(self._sum + min(z, SUM_CLIP) - ALLOWANCE, 0.0), SUM_LIMIT)
        return place, self._peak, self._trough, math.log1p(self._sum)


class _Excess:
    """The training loss above the lowest it was: what has been unlearned."""

    FAST, SLOW = 1.0 / 4.0, 1.0 / 32.0
    SEEN = 0.02
    """A rise by less is noise."""

    def __init__(self) -> None:
        self._fast = self._slow = math.nan
        self._lowest = math.inf
        self._peak = 0.0

    def update(self, loss: float) -> tuple[float, float, float, float]:
        if math.isfinite(loss):
            usable = min(max(loss, -LARGEST_LOSS), LARGEST_LOSS)
            self._fast = _smoothed(self._fast, usable, self.FAST)
            self._slow = _smoothed(self._slow, usable, self.SLOW)
            self._lowest = min(self._lowest, self._slow)
        if math.isinf(loss):
            self._peak = LARGEST_EXCESS
            return LARGEST_EXCESS, SATURATED, SATURATED, 1.0
        if math.isnan(self._fast):
            return 0.0, 0.0, 0.0, 0.0
        excess = _relative_excess(self._fast, self._lowest)
        self._peak = max(excess, MEMORY * self._peak)
        height = excess / self._peak if self._peak > self.SEEN else 0.0
        above, slope = self._fast - self._lowest, self._fast - self._slow
        return excess, _bounded(above / LOSS_UNIT_NATS), _bounded(slope / LOSS_UNIT_NATS), height


class _Validation:
    """Validation losses: a sudden change, and the excess over the lowest."""

    def __init__(self) -> None:
        self._changes = RobustReference(
            window=EVALUATIONS, warm_up=EVALUATIONS_WARM_UP, floor=0.02, clip=REFERENCE_CLIP
        )
        self._previous = math.nan
        self._lowest = math.inf
        self._jump = self._excess = 0.0

    def update(self, loss: float, evaluated: bool) -> tuple[float, float]:
        if evaluated and math.isinf(loss):
            self._jump, self._excess = SATURATED, LARGEST_EXCESS
        elif evaluated and not math.isnan(loss):
            self._jump = _bounded(self._changes.update(loss - self._previous))
            self._lowest = min(self._lowest, loss)
            self._excess = _relative_excess(loss, self._lowest)
            self._previous = loss
        return self._jump, self._excess


class _Signs:
    """Values that no healthy step has."""

    def __init__(self) -> None:
        self.now = False
        self._lowest_gap = math.inf
        self._uniform = self._non_finite = self._zero = 0.0

    def update(self, loss: float, norm: float, update: float, gap: float, broken: float) -> tuple[float, float, float]:
        non_finite = math.isinf(loss) or math.isinf(norm) or math.isinf(update) or broken > 0
        zero = norm == 0.0 or update == 0.0
        uniform = abs(gap) < UNIFORM_NATS and self._lowest_gap < -LEARNED_NATS - UNIFORM_NATS
        if gap < self._lowest_gap:
            self._lowest_gap = gap
        self.now = non_finite or zero or uniform
        self._uniform = 1.0 if uniform else MEMORY * self._uniform
        self._non_finite = 1.0 if non_finite else MEMORY * self._non_finite
        self._zero = 1.0 if zero else MEMORY * self._zero
        return self._uniform, self._non_finite, self._zero


class _Events:
    """Hardware events of late."""

    RECENT, LASTING = 0.9, 0.98
    MOST = 1e3
    """Events of one record at which their number saturates."""

    def __init__(self) -> None:
        self.now = False
        self._lambda = math.nan
        self._recent = self._lasting = 0.0

    def update(self, events: float, lambda_: float) -> tuple[float, float]:
        if math.isnan(events):
            # Comparisons with NaN are false: the first λ, and one that was not measured, is no event.
            events = float(lambda_ > self._lambda or lambda_ < self._lambda)
        if not math.isnan(lambda_):
            self._lambda = lambda_
        events = min(max(events, 0.0), self.MOST)
        self.now = events > 0
        self._recent = self.RECENT * self._recent + events
        self._lasting = self.LASTING * self._lasting + events
        return math.log1p(self._recent), math.log1p(self._lasting)


class _Anomaly:
    """Age of the present anomaly, and time since it was last seen, in records."""

    def __init__(self) -> None:
        self._age = self._quiet = -1

    def update(self, odd: bool) -> tuple[float, float]:
        running = self._age >= 0 and self._quiet < QUIET_RECORDS
        if odd:
            self._age, self._quiet = (self._age + 1 if running else 1), 0
        elif running:
            self._age, self._quiet = self._age + 1, self._quiet + 1
        else:
            self._age = self._quiet = -1
        return math.log1p(max(self._age, 0)), math.log1p(max(self._quiet, 0))


def _smoothed(average: float, value: float, share: float) -> float:
    return value if math.isnan(average) else average + share * (value - average)


def _relative_excess(loss: float, lowest: float) -> float:
    """ln(loss / lowest) in [0, 1.5]; 0 where a loss is not above 0 and has no logarithm."""
    if lowest <= 0 or loss <= lowest:
        return 0.0
    return min(math.log(loss / lowest), LARGEST_EXCESS)
