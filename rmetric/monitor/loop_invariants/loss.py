"""Invariants of the loss: something is left to learn, and it does not become another function."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rmetric.advice import LOSS, LOSS_GRADIENT
from rmetric.monitor.kept_settings import Change
from rmetric.monitor.loop_invariants.base import Invariant, OfLate, in_short

NOTHING_TO_LEARN = Change(LOSS_GRADIENT, "not 0", "exactly 0, as the loss is")
LOSS_FALLS = 10.0
"""Factor of the loss at once that is no learning."""


class NothingToLearn(Invariant):
    """Loss and gradient are not both exactly 0, as they are where every target is masked.

    Four steps in a row are news. Where a loss with a hinge comes to its end by itself, it is 0 in single steps first,
    which is by chance. A gradient of 0 beside a loss that is not is for the robust R-Metric to tell of.
    """

    by_chance = True
    breaks = 4

    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        loss, norm = (measured.get(name, math.nan) for name in ("training_loss", "grad_norm"))
        return None if math.isnan(loss) or math.isnan(norm) else loss == norm == 0.0

    def change(self) -> Change:
        return NOTHING_TO_LEARN


class LossFalls(OfLate):
    """The loss is not ten times as small as any of the last 32, three times in a row.

    A loss falls as a model learns, but not tenfold at once. One that has become another function does, one that is
    averaged over what is masked, or one whose answer has come to be among the inputs. Of a loss that is 0, as one
    batch without a target makes it, no ratio tells. One that becomes negative comes as near to 0 as it likes.
    """

    breaks = 3

    def _value(self, measured: Mapping[str, float]) -> float:
        loss = measured.get("training_loss", math.nan)
        if loss < 0.0:
            self.begin_anew()
        return loss if 0.0 < loss < math.inf else math.nan

    def _is_far(self, least: float, most: float) -> bool:
        return self._now * LOSS_FALLS < least

    def change(self) -> Change:
        return Change(LOSS, f"at least {min(self._usual, default=math.nan):.3g}", in_short(self._now))
