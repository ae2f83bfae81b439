"""How long to train between two checkpoints; all times in the same unit."""

from __future__ import annotations

import math


def young(write: float, mtbf: float) -> float:
    """Work between two checkpoints, first order: √(2 · write · mtbf).

    **Source:** Young 1974, A first order approximation to the optimum checkpoint interval.

    >>> young(5.0, 24 * 60.0)  # minutes
    120.0
    """
    return math.sqrt(2.0 * write * mtbf)


def daly(write: float, mtbf: float) -> float:
    """Work between two checkpoints, higher order.

    .. math:: \\sqrt{2 c M} \\left(1 + \\tfrac13 \\sqrt{c / 2M} + \\tfrac19 (c / 2M)\\right) - c

    for c < 2 M, otherwise M.

    Parameters
    ----------
    write
        c, time that writing a checkpoint stops the training for.
    mtbf
        M, mean time between interruptions.

    **Source:** Daly 2006, A higher order estimate of the optimum checkpoint interval for restart dumps; its Figures 3,
    4 and 5 have 117, 57 and 9.1 minutes:

    >>> [round(daly(5.0, mtbf), 1) for mtbf in (24 * 60.0, 6 * 60.0, 15.0)]
    [116.7, 56.7, 9.1]
    """
    if write >= 2.0 * mtbf:
        return mtbf
    if math.isinf(mtbf):
        return math.inf
    ratio = write / (2.0 * mtbf)
    return young(write, mtbf) * (1.0 + math.sqrt(ratio) / 3.0 + ratio / 9.0) - write
