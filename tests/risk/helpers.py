"""What several tests of the risk model use."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tests import helpers


def bits(values: ArrayLike) -> list[int | str]:
    """The bits of each number of a table, row by row; any NaN is like any other."""
    return helpers.bits(np.ravel(values))
