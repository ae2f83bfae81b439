"""Effect of a flip, judged against the healthy twin."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from rmetric.detectors.numerics import Numerics
from rmetric.evaluation.ground_truth import TOLERANCE
from rmetric.records import Observations

BIT_ORDER = ("s", *(f"e{bit}" for bit in range(10, -1, -1)), *(f"m{bit}" for bit in range(51, -1, -1)))
"""Names of bits from the sign down."""


FlipOutcome = Literal["benign", "spike", "diverged", "non_finite", "dead"]
OUTCOMES: tuple[FlipOutcome, ...] = get_args(FlipOutcome)
"""Outcomes in the order in which they are drawn. Not ``nan``, which readers of CSV files take for a missing value."""
LASTING: tuple[FlipOutcome, ...] = ("diverged", "non_finite", "dead")
"""Those that do not heal within the window."""
SPIKE_FACTOR = 2.0
"""A gradient norm so many times the twin's largest, or a largest logit so many times its healthy value, is a spike."""
WEIGHTS_MATTER = 0.01
"""Distance of the weights from the twin's, in units of the twin's own way through the window, that is no harm."""
DEAD_STEPS = 5
"""Last steps of the window in which every one must show a dead run."""
USUAL_STEPS = 50
"""Steps before the window in which the twin's largest gradient norm is looked for as well."""
EQUAL_NATS = Numerics().tolerance_nats
"""Distance from ln(vocabulary), nats, that counts as equal."""


def _pct(share: float) -> str:
    return f"{100.0 * share:g} %"


DEFINITIONS = (
    f"NaN: a loss is not finite; dead: nothing is learned in the last {DEAD_STEPS} steps; diverged: held-out loss "
    f"more than {_pct(TOLERANCE)} above the twin's at the end of the window; spike: loss {_pct(TOLERANCE)} above the "
    f"twin's, gradient norm or logits {SPIKE_FACTOR:g} times theirs, or a gradient that is not finite, and healed; "
    "benign: none of these. Harmful: NaN, dead, diverged, or a spike that was more than a wrong reading of the faulty "
    f"step (a gradient was not finite or its norm {SPIKE_FACTOR:g} times theirs, or a held-out or later loss "
    f"{_pct(TOLERANCE)} above) and left the weights more than {_pct(WEIGHTS_MATTER)} of the twin's way off."
)


@dataclass(frozen=True)
class FlipEffect:
    """Effect of a flip on the run in the window after it."""

    outcome: FlipOutcome
    largest_excess: float
    """Largest of (held-out loss / twin's − 1) over the judged steps; infinite where it was not finite, or the run had
    ended."""
    end_excess: float
    """The same at the last judged step; infinite if the run had ended by then."""
    largest_loss_excess: float
    """Largest of (training loss / twin's in the same step − 1), which has the same batch."""
    later_loss_excess: float
    """The same without the faulty step, whose own loss may be a wrong reading and nothing more; NaN if it ended there.
    """
    largest_norm_factor: float
    """Largest gradient norm over the twin's largest; infinite where a gradient was not finite."""
    logit_factor: float
    """Largest absolute logit of the faulty step over what it should have been."""
    weights_distance: float
    """Euclidean distance of all weights from the twin's at the end of the window, over the way that the twin's went in
    it; NaN if the run ended early."""

    @property
    def harmful(self) -> bool:
        """True if the flip did harm to the run, and was not only to be seen.

        It lasted (:data:`LASTING`); or the weights at the end of the window are others, and the update of the faulty
        step was lost or far too large (:data:`SPIKE_FACTOR`), or a held-out loss, or the loss of a later step, lies
        more than :data:`~rmetric.evaluation.ground_truth.TOLERANCE` above the twin's. A wrong loss or logit of the
        faulty step alone is a wrong reading.
        """
        if self.outcome in LASTING:
            return True
        lost = self.largest_norm_factor > SPIKE_FACTOR
        later = max(self.largest_excess, self.later_loss_excess) > TOLERANCE
        return self.outcome != "benign" and (lost or later) and not self.weights_distance <= WEIGHTS_MATTER


def flip_effect(
    own: Observations,
    twin: Observations,
    held_out: Mapping[int, float],
    twin_held_out: Mapping[int, float],
    *,
    onset: int,
    end: int,
    logit_factor: float,
    weights_distance: float,
) -> FlipEffect:
    """Judge a run from its records and its held-out losses, by :data:`DEFINITIONS`.

    Nothing is learned in a step whose gradient norm is exactly 0 or infinite (clipping makes it 0), or whose loss is
    exactly ln(vocabulary) where the twin's is not. A loss is compared with the twin's in the same step, a gradient norm
    with the twin's largest, the largest logit of the faulty step with its healthy value.

    Parameters
    ----------
    own, twin
        Records of the run with the flip and of the twin.
    held_out, twin_held_out
        Step → held-out loss, nats.
    onset, end
        First and last step of the window.
    logit_factor
        Of the faulty step: largest absolute logit over that of its recomputation.
    weights_distance
        At the end of the window.
    """
    mine, theirs = _window(own, onset, end), _window(twin, onset, end)
    usual = _window(twin, onset - USUAL_STEPS, end)
    same = np.isin(theirs.step, mine.step)
    loss_excesses = mine["training_loss"] / theirs["training_loss"][same] - 1.0
    norm_factor = _largest(mine["grad_norm"] / np.nanmax(usual["grad_norm"]))
    judged = [step for step in sorted(twin_held_out) if onset <= step <= end]
    excesses = [_excess(held_out.get(step, math.nan), twin_held_out[step]) for step in judged]
    excess, loss_excess = max(excesses), _largest(loss_excesses)
    outcome = _outcome(mine, theirs, held_out, (excess, excesses[-1], loss_excess, norm_factor, logit_factor))
    return FlipEffect(
        outcome=outcome,
        largest_excess=excess,
        end_excess=excesses[-1],
        largest_loss_excess=loss_excess,
        later_loss_excess=_largest(loss_excesses[mine.step > onset]),
        largest_norm_factor=norm_factor,
        logit_factor=logit_factor,
        weights_distance=weights_distance,
    )


def _outcome(
    mine: Observations, theirs: Observations, held_out: Mapping[int, float], numbers: tuple[float, ...]
) -> FlipOutcome:
    largest, end, loss, norm, logit = numbers
    if np.isinf(mine["training_loss"]).any() or not all(map(math.isfinite, held_out.values())):
        return "non_finite"
    if _stands_still(mine) and not _stands_still(theirs):
        return "dead"
    if end > TOLERANCE:
        return "diverged"
    if max(largest, loss) > TOLERANCE or max(norm, logit) > SPIKE_FACTOR or (mine["non_finite_count"] > 0).any():
        return "spike"
    return "benign"


def _stands_still(records: Observations) -> bool:
    norm, gap = records["grad_norm"][-DEAD_STEPS:], records["uniform_gap"][-DEAD_STEPS:]
    return bool(np.all((norm == 0.0) | np.isinf(norm) | (np.abs(gap) <= EQUAL_NATS)))


def _window(records: Observations, first: int, last: int) -> Observations:
    return records.rows(np.flatnonzero((records.step >= first) & (records.step <= last)))


def _excess(loss: float, twin: float) -> float:
    return loss / twin - 1.0 if math.isfinite(loss) else math.inf


def _largest(values: np.ndarray) -> float:
    return float(np.max(np.where(np.isnan(values), np.inf, values))) if len(values) else math.nan
