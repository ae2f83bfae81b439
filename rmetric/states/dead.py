"""DEAD: loss or gradient of exactly 0, or a loss that is not finite, from some step to the end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmetric.measurements import LARGEST
from rmetric.records import Observations, held
from rmetric.states.base import Evidence
from rmetric.states.series import LEAST_THE_SAME, is_exact

LEAST_RECORDS = 3
"""Smallest score: a single value that is not finite may be a batch."""
ABRUPT = 0.01
"""Share of the run's high losses from which a loss fell to 0 in one record: one that was learned gets there through
smaller and smaller values, by rounding."""
CHANGES = 96
"""Changes of the loss that tell whether one that comes again and again is likely to."""
COARSE = 10.0
"""Multiple of the smallest of those changes that their median is: losses that come close are rounded, or converge."""


def dead(observations: Observations) -> Evidence | None:
    """Score: records from the death to the end, by 1 + those of the longest stretch before, from which it came back.

    Dead is a record whose loss is not finite, whose gradient norm is exactly 0, or whose loss is exactly 0 while the
    gradient norm is not finite (the Trainer of Hugging Face logs a loss of NaN as 0.0). Without a gradient norm such
    a 0 counts if the loss before was no rounding error. So does any loss that is the same in 20 records or more, to a
    digit in which others differ: nothing that moves it is trained, or it is not measured any more. A gradient of 0 now
    and then is health where all examples of a batch are solved (triplets, policy gradients); hence the divisor. Where
    that came singly first, and the loss is 0 as well, all has been learned (a margin that every example keeps). A loss
    that is gone counts for nothing while validation losses are those of weights that live: single batches may spoil the
    mean of an epoch.
    """
    loss, norm = observations["training_loss"], observations["grad_norm"]
    if not observations.has("training_loss") and not observations.has("grad_norm"):
        return None
    zero = loss == 0.0
    since_zero, since_lost = held(loss) == 0.0, np.isinf(held(loss))  # an evaluation may be a row of its own
    evaluated = observations.stated("validation_loss")
    broke = _fell_at_once(loss) and not _move_since(since_zero, evaluated)
    disguised = zero & (np.isinf(norm) | (np.isnan(norm) & broke))
    comes_singly = (since_zero[:-1] & ~since_zero[1:]).any()
    kinds = {
        "the loss is not finite": np.isinf(loss) & (not _move_since(since_lost, evaluated)),
        "the loss is exactly 0 where it was not finite": disguised,
        "the gradient norm is exactly 0": (norm == 0.0) & ~(zero & comes_singly),
        "the loss is the same to its last digit": _stands_still(loss),
    }
    rows = np.flatnonzero(~np.isnan(loss) | ~np.isnan(norm))
    is_dead = np.logical_or.reduce([*kinds.values()])[rows]
    lasting, before = _stretches(is_dead)
    score = lasting / (1.0 + before)
    if score < LEAST_RECORDS:
        return Evidence(score=0.0, since=int(observations.step[-1]), numbers={"records": 0.0}, sentence="it lives")
    why = max(kinds, key=lambda kind: int(kinds[kind][rows[-lasting:]].sum()))
    since = int(observations.step[rows[-lasting]])
    return Evidence(
        score=score,
        since=since,
        numbers={"records": float(lasting), "longest_before": float(before)},
        sentence=f"{why} from step {since:,} to the end",
    )


def _stretches(flags: NDArray[np.bool_]) -> tuple[int, int]:
    """Number of true values at the end, and the longest stretch of them before."""
    alive = np.flatnonzero(~flags)
    lasting = len(flags) - (int(alive[-1]) + 1 if len(alive) else 0)
    gaps = np.diff(np.append(-1, alive)) - 1  # true values in front of each false one
    return lasting, int(gaps.max()) if len(gaps) else 0


def _stands_still(loss: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Records at the end whose losses are one number, of those that changed from record to record before."""
    known = np.flatnonzero(np.isfinite(loss) & (loss != 0.0))
    changes = np.abs(np.diff(np.clip(loss[known], -LARGEST, LARGEST)))
    lasting = _stretches(changes == 0.0)[0] + 1
    before = changes[: len(changes) - lasting + 1][-CHANGES:]
    still = np.zeros(len(loss), dtype=bool)
    if lasting >= LEAST_THE_SAME <= len(before) and 0.0 < COARSE * before.min() <= np.median(before):
        still[known[-lasting:]] = held(loss)[-1] != 0.0 and is_exact(float(loss[known[-1]]))
    return still


def _fell_at_once(loss: NDArray[np.float64]) -> bool:
    """True if the last loss other than 0 is no rounding error, measured by the run's high losses (90 % quantile)."""
    others = loss[np.isfinite(loss) & (loss != 0.0)]
    return bool(len(others)) and bool(abs(others[-1]) > ABRUPT * np.quantile(np.abs(others), 0.9))


def _move_since(gone: NDArray[np.bool_], evaluated: NDArray[np.float64]) -> bool:
    """True if validation losses since a loss is gone for good are finite, and now this and now that."""
    measured = evaluated[len(gone) - _stretches(gone)[0] :]
    measured = measured[~np.isnan(measured)]
    return bool(np.isfinite(measured).all()) and len(np.unique(measured)) >= LEAST_RECORDS
