"""DEAD: loss or gradient of exactly 0, or a loss that is not finite, from some step to the end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmetric.records import Observations
from rmetric.states.base import Evidence

LEAST_RECORDS = 3
"""Records that death takes: a single value that is not finite may be a batch."""
ABRUPT = 0.01
"""Share of the run's usual loss from which a loss fell to 0 in one record: one that was learned gets there by rounding,
through smaller and smaller values."""


def dead(observations: Observations) -> Evidence | None:
    """Score: records from the death to the end.

    Dead is a record whose loss is not finite, whose gradient norm is exactly 0, or whose loss is exactly 0 where either
    the gradient norm is not finite (older Trainers of Hugging Face log a loss of NaN as 0.0) or, where no gradient norm
    is logged, the loss before was no rounding error.
    """
    loss, norm = observations["training_loss"], observations["grad_norm"]
    if not observations.has("training_loss") and not observations.has("grad_norm"):
        return None
    zero = loss == 0.0
    if not observations.has("grad_norm"):
        disguised = zero & _fell_at_once(loss)
    else:
        disguised = zero & ~np.isfinite(norm)
    kinds = {
        "the loss is not finite": np.isinf(loss),
        "the loss is exactly 0 where it was not finite": disguised,
        "the gradient norm is exactly 0": norm == 0.0,
    }
    measured = ~np.isnan(loss) | ~np.isnan(norm)
    is_dead = np.logical_or.reduce([*kinds.values()])[measured]
    lasting = _trailing(is_dead)
    if lasting < LEAST_RECORDS:
        return Evidence(score=0.0, since=int(observations.step[0]), numbers={"records": 0.0}, sentence="it lives")
    rows = np.flatnonzero(measured)[-lasting:]
    why = max(kinds, key=lambda kind: int(kinds[kind][rows].sum()))
    since = int(observations.step[rows[0]])
    return Evidence(
        score=float(lasting),
        since=since,
        numbers={"records": float(lasting)},
        sentence=f"{why} in {lasting:,} records to the end",
    )


def _trailing(flags: NDArray[np.bool_]) -> int:
    """Number of true values at the end."""
    alive = np.flatnonzero(~flags)
    return len(flags) - (int(alive[-1]) + 1 if len(alive) else 0)


def _fell_at_once(loss: NDArray[np.float64]) -> bool:
    """True if the last loss other than 0 is no rounding error of the run's usual loss."""
    others = loss[np.isfinite(loss) & (loss != 0.0)]
    return bool(len(others)) and bool(abs(others[-1]) > ABRUPT * np.median(np.abs(others)))
