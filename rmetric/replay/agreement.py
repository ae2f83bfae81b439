"""How recomputed numbers compare with those that the log holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmetric.records import to_log_precision

AGREEMENT = 1e-9
"""Largest difference from the log's own number that counts as agreement."""


@dataclass
class Agreement:
    """How a recomputed number compares with the one in the log."""

    records: int = 0
    """Records in which the log states it."""
    max_difference: float = 0.0
    """Largest absolute difference; infinite if only one of the two is a finite number. A value that the log holds
    rounded to its 7 digits is compared as rounded."""

    @property
    def agrees(self) -> bool:
        """Whether no difference exceeds 1e-9."""
        return self.max_difference <= AGREEMENT

    def extend(self, ours: NDArray[np.float64], logged: NDArray[np.float64]) -> None:
        """Compare the next records, each of shape (n,); NaN in ``logged``: the log does not state it."""
        stated = ~np.isnan(logged)
        if not stated.any():
            return
        ours, logged = ours[stated], logged[stated]
        self.records += len(ours)
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.fmin(np.abs(ours - logged), np.abs(to_log_precision(ours) - logged))
        difference = np.where(np.isinf(ours) & np.isinf(logged), 0.0, difference)
        self.max_difference = max(self.max_difference, float(np.where(np.isnan(difference), np.inf, difference).max()))

    @property
    def in_brief(self) -> str:
        """``yes``, ``no`` with the largest difference, or ``-`` if the log does not state the number."""
        if not self.records:
            return "-"
        return "yes" if self.agrees else f"no ({self.max_difference:.2g})"
