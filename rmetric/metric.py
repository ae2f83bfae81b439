"""The R-Metric: normalise three signals, weigh them, compare the sum with a threshold."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmetric.measurements import VERDICTS
from rmetric.signals import PAPER_THRESHOLD, Weights

if TYPE_CHECKING:
    from rmetric.robust.metric import RobustRMetric


class SlidingRange:
    """Min–max normalisation of a signal over its own last ``window`` records, the current one included.

    .. math:: x' = (x - \\min) / (\\max - \\min)

    A value that was not measured (NaN) gives 0 and counts for nothing; a non-finite one (infinity) gives 1 and does not
    enter the history; fewer than two values, or all equal, give 0. The result lies in [0, 1].

    :meth:`update` is amortised O(1) (two monotonic queues), :meth:`extend` is vectorised; the two give the same bits
    and may be mixed in any order.
    """

    def __init__(self, window: int) -> None:
        if window < 2:
            raise ValueError(f"window must be at least 2 records, not {window}")
        self.window = window
        self._count = 0
        # (index, value) of those values of the window that can still become its minimum (its maximum).
        self._low: deque[tuple[int, float]] = deque()
        self._high: deque[tuple[int, float]] = deque()
        self._behind: NDArray[np.float64] | None = None
        """The latest values, where they have yet to enter the queues: of whole runs nothing comes after them."""

    def update(self, value: float) -> float:
        """The normalised value of the next record."""
        self._catch_up()
        index = self._count
        self._count += 1
        low, high, expired = self._low, self._high, index - self.window
        if low and low[0][0] <= expired:
            low.popleft()
        if high and high[0][0] <= expired:
            high.popleft()
        if not math.isfinite(value):
            return 1.0 if math.isinf(value) else 0.0
        while low and low[-1][1] >= value:
            low.pop()
        low.append((index, value))
        while high and high[-1][1] <= value:
            high.pop()
        high.append((index, value))
        # Halves, because the span of two huge values would overflow.
        minimum = 0.5 * low[0][1]
        span = 0.5 * high[0][1] - minimum
        return (0.5 * value - minimum) / span + 0.0 if span > 0 else 0.0

    def extend(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The normalised values of the next ``n`` records, shape (n,)."""
        self._catch_up()
        finite = np.where(np.isfinite(values), values, np.nan)
        minimum = 0.5 * self._rolling(finite, self._low, np.fmin)
        span = 0.5 * self._rolling(finite, self._high, np.fmax) - minimum
        usable = span > 0  # False for NaN, that is for an empty window
        normalised = np.zeros(len(values))
        np.divide(0.5 * finite - minimum, span, out=normalised, where=usable & ~np.isnan(finite))
        normalised += 0.0
        normalised[np.isinf(values)] = 1.0
        self._count += len(values)
        self._behind = finite
        return normalised

    def _catch_up(self) -> None:
        if self._behind is not None:
            self._low = self._queue(self._behind, self._low, np.fmin)
            self._high = self._queue(self._behind, self._high, np.fmax)
            self._behind = None

    def _rolling(
        self, finite: NDArray[np.float64], queue: deque[tuple[int, float]], extreme: np.ufunc
    ) -> NDArray[np.float64]:
        carried = np.full(min(self._count, self.window - 1), np.nan)
        for index, value in queue:
            position = index - self._count + len(carried)
            if position >= 0:
                carried[position] = value
        series = np.concatenate([carried, finite])
        if len(series) <= self.window:
            return extreme.accumulate(series)[len(carried) :]
        before = np.full(self.window - 1 - len(carried), np.nan)
        return _of_windows(np.concatenate([before, series]), self.window, extreme)

    def _queue(
        self, finite: NDArray[np.float64], queue: deque[tuple[int, float]], extreme: np.ufunc
    ) -> deque[tuple[int, float]]:
        # A value survives if nothing after it is at least as extreme.
        reached = extreme.accumulate(np.append(math.nan, finite[: -self.window - 1 : -1]))
        ago = np.flatnonzero((reached[1:] != reached[:-1]) & ~np.isnan(reached[1:]))[::-1]
        oldest, most = self._count - self.window, reached[-1]
        entries = [entry for entry in queue if entry[0] > oldest and extreme(most, entry[1]) != most]
        return deque([*entries, *zip((self._count - 1 - ago).tolist(), reached[ago + 1].tolist(), strict=True)])


def _of_windows(values: NDArray[np.float64], window: int, extreme: np.ufunc) -> NDArray[np.float64]:
    """Extreme of each ``window`` values in a row; NaN counts for nothing.

    In blocks as long as a window, each window is the end of one block and the beginning of the next.

    **Source:** van Herk, "A fast algorithm for local minimum and maximum filters", Pattern Recognition Letters 13
    (1992).
    """
    count = len(values) - window + 1
    blocks = np.pad(values, (0, -len(values) % window), constant_values=np.nan).reshape(-1, window)
    ends = extreme.accumulate(blocks[:, ::-1], axis=1)[:, ::-1].ravel()
    beginnings = extreme.accumulate(blocks, axis=1).ravel()
    return extreme(ends[:count], beginnings[window - 1 :][:count])


class RValue(NamedTuple):
    """R and the three normalised signals it is made of (floats, or arrays of shape (n,))."""

    r: float | NDArray[np.float64]
    """NaN where none of the three was measured."""
    lambda_norm: float | NDArray[np.float64]
    sigma_sq_norm: float | NDArray[np.float64]
    delta_l_norm: float | NDArray[np.float64]

    def by_log_name(self) -> dict[str, float | NDArray[np.float64]]:
        """The four values by their names in the log (:data:`~rmetric.measurements.VERDICTS`), in its order."""
        return {name: self.r if name == "r_metric" else getattr(self, name) for name in VERDICTS}


@dataclass(frozen=True, kw_only=True)
class _Settings:
    weights: Weights
    threshold: float
    window: int


class RMetric:
    """R = w_λ·λ' + w_σ²·σ²' + w_ΔL·ΔL', each signal normalised over its own sliding history.

    Parameters
    ----------
    weights
        Weights of λ, σ² and ΔL, each at least 0.
    threshold
        An alert is due when R exceeds it.
    window
        Length of each normalisation history, in records.

    Notes
    -----
    **Source:** M. Fatima 2025; weights 0.10 / 0.45 / 0.70, threshold 0.57, history of up to 1,000 values.

    **Deviation:** non-finite signals saturate at 1 and stay out of the history (see :class:`SlidingRange`). One that
    was not measured counts for nothing, and where none of the three was measured R is NaN.

    Examples
    --------
    >>> metric = RMetric.paper()
    >>> signals = ((0.0, 1.0, 0.0), (0.0, 2.0, 0.5), (0.0, 1.5, math.inf))
    >>> [round(float(metric.update(*signal).r), 3) for signal in signals]
    [0.0, 1.15, 0.925]
    """

    def __init__(
        self, *, weights: tuple[float, float, float] = Weights(), threshold: float = PAPER_THRESHOLD, window: int = 1000
    ) -> None:
        if any(not (weight >= 0 and math.isfinite(weight)) for weight in weights):
            raise ValueError(f"weights must be finite and at least 0, not {tuple(weights)}")
        self._settings = _Settings(weights=Weights(*weights), threshold=threshold, window=window)
        self._lambda, self._sigma_sq, self._delta_l = (SlidingRange(window) for _ in range(3))

    @classmethod
    def paper(cls) -> RMetric:
        """The authors' exact setting: weights 0.10 / 0.45 / 0.70, threshold 0.57, histories of 1,000 values.

        Their cadence, a record every 100 steps, is the log's: ``run_modern_experiments.py --log-every 100``.
        """
        return cls()

    @classmethod
    def paper_case_study(cls) -> RMetric:
        """The authors' case-study setting: the same weights and threshold, histories of 100 values."""
        return cls(window=100)

    @classmethod
    def robust(cls) -> RobustRMetric:
        """The calibrated, robust metric: the same three components, each from the best estimators of its kind.

        Its :meth:`~rmetric.robust.metric.RobustRMetric.update` takes a whole observation, because each component has
        more than one signal.
        """
        from rmetric.robust.metric import RobustRMetric

        return RobustRMetric()

    @property
    def weights(self) -> Weights:
        """Weights of λ, σ² and ΔL."""
        return self._settings.weights

    @property
    def threshold(self) -> float:
        """An alert is due when R exceeds it."""
        return self._settings.threshold

    @property
    def window(self) -> int:
        """Length of each normalisation history, in records."""
        return self._settings.window

    def fresh(self, **changes: object) -> RMetric:
        """A metric with the same settings, but for ``changes``, and without any history."""
        settings = replace(self._settings, **changes)  # type: ignore[arg-type]
        return RMetric(weights=settings.weights, threshold=settings.threshold, window=settings.window)

    def update(self, lambda_: float, sigma_sq: float, delta_l: float) -> RValue:
        """R of the next record. NaN: not measured; infinity: measured and not finite."""
        norms = self._lambda.update(lambda_), self._sigma_sq.update(sigma_sq), self._delta_l.update(delta_l)
        unmeasured = math.isnan(lambda_) and math.isnan(sigma_sq) and math.isnan(delta_l)
        return RValue(math.nan if unmeasured else self.weights.weigh(*norms), *norms)

    def extend(
        self, lambda_: NDArray[np.float64], sigma_sq: NDArray[np.float64], delta_l: NDArray[np.float64]
    ) -> RValue:
        """R of the next ``n`` records, each argument of shape (n,); the same bits as ``n`` times :meth:`update`."""
        norms = self._lambda.extend(lambda_), self._sigma_sq.extend(sigma_sq), self._delta_l.extend(delta_l)
        unmeasured = np.isnan(lambda_) & np.isnan(sigma_sq) & np.isnan(delta_l)
        return RValue(np.where(unmeasured, np.nan, self.weights.weigh(*norms)), *norms)


PRESETS = {"paper": RMetric.paper, "paper-case-study": RMetric.paper_case_study}
"""Named settings of the metric, by their names on the command line."""
