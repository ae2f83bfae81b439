"""Invariants of the loss: something is left to learn, and it does not become another function."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rmetric.advice import LOSS, LOSS_GRADIENT
from rmetric.monitor.changes import SettingChange
from rmetric.monitor.loop_invariants.base import HELD, Invariant, OfLate, in_short

NOTHING_TO_LEARN = SettingChange(LOSS_GRADIENT, "not 0", "exactly 0, as the loss is")
LOSS_FALLS, LOSS_LEAPS = 0.1, 0.5
"""Share of the loss to which it falls at once and that is no learning: of a noisy one, and of one that is not."""


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

    def change(self) -> SettingChange:
        return NOTHING_TO_LEARN


class LossFalls(OfLate):
    """The loss does not leap far below those of the last 32, three times in a row.

    Far is a tenth of the smallest, or below half of it and below it by more than they differ, be it below 0. A loss
    falls as a model learns, but not so far at once. One that has become another function does, one that is averaged
    over what is masked, one of which a term has lost its sign, or one whose answer has come to be among the inputs. Of
    a loss that is 0, as one batch without a target makes it, no ratio tells; nor beside one that was negative. One
    that is the noise of the updates falls with their learning rate: where that is halved, all begins anew.
    """

    breaks = 3

    def __init__(self) -> None:
        super().__init__()
        self._rate = math.nan

    def _value(self, measured: Mapping[str, float]) -> float:
        before, self._rate = self._rate, measured.get("learning_rate", math.nan)
        if self._rate <= before * LOSS_LEAPS:
            self.begin_anew()
        loss = measured.get("training_loss", math.nan)
        return loss if math.isfinite(loss) and loss != 0.0 else math.nan

    def _is_far(self, least: float, most: float) -> bool:
        if least <= 0.0 or len(self._usual) < HELD:
            return False
        leapt = self._now < min(LOSS_LEAPS * least, least - (most - least))
        return leapt or 0.0 < self._now < LOSS_FALLS * least

    def change(self) -> SettingChange:
        return SettingChange(LOSS, f"at least {min(self._usual, default=math.nan):.3g}", in_short(self._now))
