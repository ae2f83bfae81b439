"""GRADIENT_GROWS: the gradient norm grows without end."""

from __future__ import annotations

import numpy as np

from rmetric.records import Observations
from rmetric.states.base import Evidence
from rmetric.states.series import Series, finite, least_rise

LEAST_RECORDS = 50
MOST_BLOCKS = 50
TENFOLD = 1.0
"""In powers of ten."""
FIRST, BEGUN = 5, 1.5
"""Part of the half, a fifth, that is its beginning, and the multiple of its level above which a norm has grown."""


def gradient_grows(observations: Observations) -> Evidence | None:
    """Score: growth of the gradient norm over the last half of the run, in powers of ten, still going on.

    The lower bound (95 %) of Theil and Sen's slope of log10 of the norm, times the records of the half; or, if that is
    less, as much of the last quarter, doubled: what has stopped growing does not count. 0 below a factor of ten: norms
    of healthy runs grow up to sixfold as the learning rate decays.
    """
    norm = finite(observations, "grad_norm")
    if len(norm) < LEAST_RECORDS:
        return None
    half, quarter = norm.part(slice(len(norm) // 2, None)), norm.part(slice(3 * len(norm) // 4, None))
    growth = _powers_of_ten(half)
    if growth >= TENFOLD:  # as in few runs
        growth = min(growth, 2.0 * _powers_of_ten(quarter))
    return Evidence(
        score=growth if growth >= TENFOLD else 0.0,
        since=_begin(half.blocks(MOST_BLOCKS)),
        numbers={"powers_of_ten": growth, "from": float(half.values[0]), "to": float(norm.values[-1])},
        sentence=f"the gradient norm has grown at least {10.0 ** min(growth, 300.0):.3g}-fold over the last half "
        f"of the run, to {norm.values[-1]:.3g}",
    )


def _begin(blocks: Series) -> int:
    """Step from which on the norm stays above where the half began."""
    level = np.median(blocks.values[: max(1, len(blocks) // FIRST)])
    low = np.flatnonzero(blocks.values <= BEGUN * level)
    return int(blocks.steps[min(int(low[-1]) + 1, len(blocks) - 1)])


def _powers_of_ten(norm: Series) -> float:
    """Lower bound of the growth from the first to the last value, in powers of ten."""
    return least_rise(np.log10(np.maximum(norm.blocks(MOST_BLOCKS).values, 1e-300)))
