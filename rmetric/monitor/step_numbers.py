"""The numbers of a training step on the host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class StepNumbers:
    """The numbers of a step on the host."""

    gradients: list[int]
    """Indices of the parameters that had a gradient."""
    norms: NDArray[np.float64]
    """Norm of each, shape (gradients,)."""
    parts: NDArray[np.float64]
    """Gradient norms of workers or micro-batches, shape (parts,); empty: not measured."""
    scalars: dict[str, float]
    """Further scalars by name; one that was not measured is missing."""
    names: Sequence[str] = ()
    """Names of all parameters so far; the list may grow later on."""

    def named(self, chosen: NDArray[np.bool_]) -> list[str]:
        """Names of some of the gradients; ``chosen`` of shape (gradients,)."""
        return [self.names[self.gradients[index]] for index in np.flatnonzero(chosen)]

    @cached_property
    def norm(self) -> float:
        """Global gradient norm; not finite if any gradient is not, NaN where there is none.

        It is a scalar of its own where a loop reports it, and no norm of each.
        """
        if not len(self.norms):
            return self.scalars.get("grad_norm", math.nan)
        return math.sqrt(float(self.norms @ self.norms))

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.norms).all())


UNMEASURED = StepNumbers([], np.empty(0), np.empty(0), {})
"""Numbers of what is no step."""
