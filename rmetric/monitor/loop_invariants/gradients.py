"""Invariants of gradients: clipped as before, none cut off, none cleared between micro-batches."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping

from rmetric.advice import CLIPPING, NORM
from rmetric.monitor.changes import FACTOR, SettingChange
from rmetric.monitor.loop_invariants.base import Invariant, Remembered, in_short

UNTOUCHED = 1e-3
"""Largest relative change of a gradient's norm that is rounding and no clipping."""


class Clipping(Invariant):
    """Gradients reach the optimizer as long as before: clipped to one norm, or left alone as far as they were.

    Of what is clipped the norm is that of the last time, within a factor of three: clippers that go by the gradients'
    past move it gradually. What is longer is clipped; what is no longer than what was left alone is left alone again.
    """

    by_chance = True

    def __init__(self) -> None:
        super().__init__()
        self._norm = math.nan
        self.begin_anew()

    def begin_anew(self) -> None:
        super().begin_anew()
        self._bound, self._left_alone = math.inf, 0.0
        self._now, self._clipped, self._lengthened = math.nan, False, False

    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        norm, self._norm = self._norm, measured.get("grad_norm", math.nan)  # an update is seen one measurement later
        share = measured.get("gradient_left", math.nan)
        if not (0.0 < norm < math.inf and 0.0 < share < math.inf):
            return None
        self._now, self._clipped, self._lengthened = norm * share, share < 1.0 - UNTOUCHED, share > 1.0 + UNTOUCHED
        least, most = min(norm, self._left_alone if self._bound == math.inf else self._bound), min(norm, self._bound)
        return not least / FACTOR <= self._now <= most * FACTOR

    def learn(self, measured: Mapping[str, float]) -> None:
        if self._clipped:
            self._bound = self._now
        else:
            self._left_alone = max(self._left_alone, self._now)

    def change(self) -> SettingChange:
        before = f"none up to {self._left_alone:.3g}" if self._bound == math.inf else in_short(self._bound)
        after = f"none, but lengthening to {self._now:.3g}" if self._lengthened else f"none at {self._now:.3g}"
        return SettingChange(CLIPPING, before, in_short(self._now) if self._clipped else after)


class OfGradients(Remembered):
    """Base of invariants of the gradients before clipping.

    Where layers are frozen or freed, what is usual is learned anew.
    """

    def __init__(self) -> None:
        super().__init__()
        self._required = math.inf

    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        before, self._required = self._required, measured.get("required_gradients", math.inf)
        if self._required != before:
            self.begin_anew()
        return self._is_broken(measured) if measured.get("grad_norm", math.nan) > 0.0 else None

    @abstractmethod
    def _is_broken(self, measured: Mapping[str, float]) -> bool | None:
        """Whether the invariant is broken in a step that has a gradient; ``None``: not known."""


class NoMore(OfGradients):
    """A number of tensors or passes is no larger than any of the last 32.

    Of tensors that are cut off from the gradient. And of passes that begin with no gradient: of the micro-batches of a
    step the first does; where all do, each clears what the one before has added.
    """

    def __init__(self, name: str, setting: str) -> None:
        super().__init__()
        self._name, self._setting = name, setting

    def _is_broken(self, measured: Mapping[str, float]) -> bool | None:
        self._now = measured.get(self._name, math.nan)
        return None if math.isnan(self._now) else self._now > max(self._usual, default=self._now)

    def change(self) -> SettingChange:
        return SettingChange(self._setting, max(self._usual, default=0.0), self._now)


class GradientFalls(OfGradients):
    """The gradient norm is not three times as small as any of the last 32, unless the loss is below all of those, too.

    Gradients shrink as a model learns, but not at once. One that is cut off does, and one of a loss that was made small
    after it was logged.
    """

    def _is_broken(self, measured: Mapping[str, float]) -> bool | None:
        loss, self._now = measured.get("training_loss", math.nan), measured["grad_norm"]
        if not (math.isfinite(loss) and math.isfinite(self._now)):
            return None
        losses, norms = zip(*(self._usual or [(loss, self._now)]), strict=True)
        return self._now * FACTOR < min(norms) and loss >= min(losses)

    def learn(self, measured: Mapping[str, float]) -> None:
        self._usual.append((measured["training_loss"], self._now))

    def change(self) -> SettingChange:
        least = min((norm for _, norm in self._usual), default=math.nan)
        return SettingChange(NORM, f"at least {least:.3g}", in_short(self._now))
