"""Small shifts that last: a one-sided cumulative sum."""

from __future__ import annotations

import math

CAP, CEILING = 3.0, 60.0
"""What one record counts at most, so that it takes several to raise an alert, and the sum at most."""


class Cusum:
    """One-sided CUSUM of standardised values, each of which counts only up to a cap.

    .. math:: S_t = \\min(\\max(0, S_{t-1} + \\min(z_t, cap) - k), ceiling)

    Parameters
    ----------
    allowance
        k: what a healthy value may exceed its expectation by; half the smallest shift that matters (Page's optimum).
    cap
        Largest value that counts: one outlier, however large, is not a drift.
    ceiling
        Largest sum, so that the evidence fades within ``ceiling / allowance`` values once all is well again.

    A NaN leaves the sum as it is, infinity fills it.

    **Source:** Page, "Continuous inspection schemes", Biometrika 41 (1954). river has Page's test with a running mean
    of its own; there the shift itself enters the mean, and an outlier counts whole.

    >>> cusum = Cusum(allowance=0.5, cap=4.0, ceiling=50.0)
    >>> [cusum.update(z) for z in (0.2, 1.5, 100.0, float("nan"), -1.0)]
    [0.0, 1.0, 4.5, 4.5, 3.0]
    """

    def __init__(self, *, allowance: float, cap: float = CAP, ceiling: float = CEILING) -> None:
        self.allowance, self.cap, self.ceiling = allowance, cap, ceiling
        self.value = 0.0

    def update(self, z: float, *, planned: bool = False) -> float:
        """The sum with the next value; where a change is ``planned``, a finite one is not added."""
        if z == math.inf:
            self.value = self.ceiling
        elif not planned and not math.isnan(z):
            self.value = min(max(0.0, self.value + min(z, self.cap) - self.allowance), self.ceiling)
        return self.value
