"""Gradient noise scale: up to which batch size more sequences a step still pay."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MEMORY_STEPS = 100.0
"""Steps over which the two estimates are averaged: each alone is far too noisy to be divided."""
LARGEST_NORM = 1e150
"""Its square, and sums of such, still fit a double."""


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
    return "" if norms.max() < LARGEST_NORM else "a norm too large to be squared"
