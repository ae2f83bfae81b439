"""Streaming estimators of a run's signals: λ, σ² and ΔL of the R-Metric, and the gradient noise scale.

**Source** of the first three: M. Fatima, EMNLP 2025 Industry Track, 2025.emnlp-industry.193, and the files its author
published.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rmetric.measurements import LARGEST

Signal = TypeVar("Signal", float, NDArray[np.float64])


class Weights(NamedTuple):
    """Weight of each normalised signal. The paper's sum to 1.25, so that its R lies in [0, 1.25]."""

    lambda_: float = 0.10
    sigma_sq: float = 0.45
    delta_l: float = 0.70

    def weigh(self, lambda_norm: Signal, sigma_sq_norm: Signal, delta_l_norm: Signal) -> Signal:
        """R of normalised signals: floats, or arrays of one shape; always summed in this order, to the same bits."""
        return self.lambda_ * lambda_norm + self.sigma_sq * sigma_sq_norm + self.delta_l * delta_l_norm


PAPER_THRESHOLD = 0.57
"""An alert is due when the paper's R lies above it."""
MIN_SPAN_S = 1.0
"""Shortest span that λ divides by, seconds."""


class HardwareFailureRate:
    """λ: hardware events among the last ``window``, divided by the time they span, in events per hour.

    .. math:: λ = n / (t_n - t_1), \\quad n \\le window

    **Deviation:** with fewer than two events the span is not defined and λ is 0; with ``start_s`` a single event spans
    the time since then. A span below one second counts as one second, so that a burst gives a large λ and not a
    division by zero.

    Parameters
    ----------
    window
        Number of most recent events that count (the authors: 50).
    start_s
        When watching began: with it a single event has a span, so that the first lost worker already shows.

    Examples
    --------
    >>> rate = HardwareFailureRate()
    >>> for time_s in (0.0, 1800.0, 3600.0):
    ...     rate.update(time_s)
    >>> rate.value
    3.0
    >>> rate = HardwareFailureRate(start_s=0.0)
    >>> rate.update(1800.0)
    >>> rate.value
    2.0
    """

    def __init__(self, window: int = 50, *, start_s: float | None = None) -> None:
        if window < 2:
            raise ValueError(f"window must be at least 2 events, not {window}")
        self._start_s = start_s
        self._times_s: deque[float] = deque(maxlen=window)

    def update(self, time_s: float) -> None:
        """Note one hardware event at ``time_s`` seconds of training time."""
        self._times_s.append(time_s)

    @property
    def value(self) -> float:
        """λ in events per hour, at least 0."""
        if not self._times_s:
            return 0.0
        first_s = self._times_s[0] if len(self._times_s) > 1 else self._start_s
        if first_s is None:
            return 0.0
        span_s = max(self._times_s[-1] - first_s, MIN_SPAN_S)
        return len(self._times_s) * 3600.0 / span_s


def event_worker(workers: Sequence[int]) -> float:
    """The worker that reported most of some hardware events; NaN if there were none.

    Parameters
    ----------
    workers
        Who reported each of them. Of several that reported as many, the first one counts.

    Examples
    --------
    >>> event_worker([3]), event_worker([5, 2, 2]), event_worker([])
    (3.0, 2.0, nan)
    """
    return float(max(workers, key=workers.count)) if workers else math.nan


def gradient_variance(worker_norms_RW: NDArray[np.floating]) -> NDArray[np.float64]:
    """σ²: population variance of the gradient norms over workers.

    Parameters
    ----------
    worker_norms_RW
        Gradient norms, shape (..., workers), at least 0.

    Returns
    -------
    array
        Shape (...), in squared units of the norm, at least 0.

    Examples
    --------
    >>> float(gradient_variance(np.array([1.0, 1.0, 3.0, 3.0])))
    1.0
    """
    count = worker_norms_RW.shape[-1]  # np.var does the same sums, at three times the cost for a few workers
    mean = np.add.reduce(worker_norms_RW, axis=-1, keepdims=True, dtype=np.float64) / count
    deviation = worker_norms_RW - mean
    deviation *= deviation
    return np.add.reduce(deviation, axis=-1) / count


class ValidationDrift:
    """ΔL: validation loss minus the mean of the ``window`` validation losses before it, in nats.

    .. math:: ΔL_k = L_k - \\frac{1}{n} \\sum_{j=k-n}^{k-1} L_j, \\quad n = \\min(k, window)

    The first evaluation has nothing to be compared with and gives NaN (not measured). A non-finite loss gives ``+inf``
    and does not enter the history. Read off the authors' logs: with this definition, and none that counts the current
    loss in the mean, their ``delta_l_norm`` comes out to 15 digits.

    **Deviation:** the authors put a fixed 10 or 100 in place of the drift when the loss is NaN, which distorts the
    normalisation of all later values; here a non-finite drift stays non-finite and saturates the normalised signal.

    Parameters
    ----------
    window
        Number of earlier losses in the mean (the authors: 100; 10 in their case study).

    Examples
    --------
    >>> drift = ValidationDrift()
    >>> [drift.update(loss) for loss in (3.0, 2.0, 4.0)]
    [nan, -1.0, 1.5]
    """

    def __init__(self, window: int = 100) -> None:
        if window < 1:
            raise ValueError(f"window must be at least 1 evaluation, not {window}")
        self._losses: deque[float] = deque(maxlen=window)

    def update(self, validation_loss: float) -> float:
        """ΔL of a new validation loss. O(window), and only at evaluations: the sum is exact, so it cannot drift."""
        if not math.isfinite(validation_loss):
            return math.inf
        drift = validation_loss - self._mean() if self._losses else math.nan
        self._losses.append(validation_loss)
        return math.inf if math.isinf(drift) else drift

    def extend(self, validation_losses: NDArray[np.float64]) -> NDArray[np.float64]:
        """ΔL of the next ``k`` validation losses, shape (k,); the same bits as ``k`` times :meth:`update`."""
        known = np.array([*self._losses, *validation_losses])
        means = _exact_means(known, len(self._losses), self._losses.maxlen or 0)
        if means is None:
            return np.array([self.update(loss) for loss in validation_losses.tolist()])
        self._losses.extend(validation_losses.tolist())
        return validation_losses - means

    def _mean(self) -> float:
        try:
            return math.fsum(self._losses) / len(self._losses)
        except OverflowError:  # losses near the largest double
            return math.inf


def _exact_means(values: NDArray[np.float64], first: int, window: int) -> NDArray[np.float64] | None:
    """Mean of the ``window`` values before each one from the ``first`` on, by exact sums; ``None`` if that is not easy.

    It is where all values are whole multiples of one power of two, of which a window has fewer than 2^63.
    """
    size = np.abs(values)
    if not len(values) or not 1e-200 < size.min() <= size.max() < 1e200:
        return None
    least, most = np.frexp([size.min(), size.max()])[1].tolist()
    if 53 + most - least + window.bit_length() > 63:
        return None
    unit = math.ldexp(1.0, least - 53)
    before = np.append(0, np.cumsum((values / unit).astype(np.int64)))  # differences hold even where it overflows
    at = np.arange(first, len(values))
    begin = np.maximum(at - window, 0)
    with np.errstate(invalid="ignore"):  # nothing before the very first
        return (before[at] - before[begin]) * unit / (at - begin)


MEMORY_STEPS = 100.0
"""Steps over which the two estimates are averaged: each alone is far too noisy to be divided."""


class GradientNoiseScale:
    """B_simple = tr Σ / |G|², from the gradients of the equal parts of a batch.

    Let g_i be the gradients of n parts and ḡ their mean. With the true gradient G and the covariance Σ of a part's
    gradient, E|g_i|² = |G|² + tr Σ and E|ḡ|² = |G|² + tr Σ / n, so that

    .. math::
        |G|^2 \\approx \\frac{n |ḡ|^2 - \\overline{|g_i|^2}}{n - 1}, \\qquad
        tr Σ \\approx \\frac{n}{n - 1} \\left( \\overline{|g_i|^2} - |ḡ|^2 \\right)

    are unbiased. Each is averaged over the steps with exponentially fading weights, then they are divided. A common
    factor of all gradients changes nothing, as long as it stays the same.

    **Source:** McCandlish et al. 2018, arXiv 1812.06162, Appendix A.1, with B_small one part and B_big all n.

    **Deviation:** in units of parts; times the sequences in a part it is in sequences.

    Parameters
    ----------
    memory_steps
        Time constant of the fading weights, steps, at least 1.

    Examples
    --------
    >>> scale = GradientNoiseScale()
    >>> scale.update([3.0, 4.0], 3.5)  # |G|² = 2·12.25 − 12.5 = 12, tr Σ = 2·(12.5 − 12.25) = 0.5
    0.041666666666666664
    >>> scale.update([3.0], 3.0), scale.reason
    (nan, 'a single part')
    """

    def __init__(self, memory_steps: float = MEMORY_STEPS) -> None:
        if not memory_steps >= 1:
            raise ValueError(f"memory_steps must be at least 1, not {memory_steps}")
        self._kept = 1.0 - 1.0 / memory_steps
        self._signal = 0.0
        self._noise = 0.0
        self.reason = "no step yet"
        """Why the latest value is NaN; empty if it is not."""

    def update(self, part_norms: Sequence[float] | NDArray[np.floating], mean_norm: float) -> float:
        """B_simple after the next step.

        Parameters
        ----------
        part_norms
            |g_i|, the norms of the parts' gradients, shape (parts,).
        mean_norm
            |ḡ|, the norm of their mean: of the gradient with which the optimizer steps, before clipping.

        Returns
        -------
        float
            In parts, at least 0; NaN where it is not defined, see :attr:`reason`. A step that cannot be used (a single
            part, a norm that is not finite) gives NaN and leaves no trace.
        """
        norms = np.asarray(part_norms, dtype=np.float64)
        self.reason = _unusable(norms, mean_norm)
        if self.reason:
            return math.nan
        n = len(norms)
        of_parts, of_mean = float(np.mean(norms * norms)), mean_norm * mean_norm
        self._signal = self._kept * self._signal + (n * of_mean - of_parts) / (n - 1)
        self._noise = self._kept * self._noise + (of_parts - of_mean) * n / (n - 1)
        self.reason = self._undefined()
        return math.nan if self.reason else self._noise / self._signal

    def _undefined(self) -> str:
        """Why the quotient is not defined, or nothing. The sums are weighted alike, so that their weight cancels."""
        if self._signal <= 0:
            return "the gradient is lost in its noise: the estimate of |G|² is not above 0"
        return "the noise is too small to be told: the estimate of tr Σ is below 0" if self._noise < 0 else ""


def _unusable(part_norms: NDArray[np.float64], mean_norm: float) -> str:
    if len(part_norms) < 2:
        return "a single part"
    norms = np.append(part_norms, mean_norm)
    if not np.isfinite(norms).all():
        return "a norm that is not finite"
    return "" if norms.max() < LARGEST else "a norm too large to be squared"
