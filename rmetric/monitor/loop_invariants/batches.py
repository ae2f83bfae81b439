"""Invariants of batches: none comes again soon, and inputs have one scale and one centre."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

from rmetric.advice import BATCH, CENTRE, INPUTS
from rmetric.monitor.changes import FACTOR, SettingChange
from rmetric.monitor.loop_invariants.base import Invariant, OfLate

FEW_BATCHES = SettingChange(BATCH, "a new one", "one of few that come again and again")
BATCHES = 16
"""Latest batches, of which few that are served again and again are."""
OFF_CENTRE = 0.5
"""Change of the inputs' mean, in their root mean squares, that is another centre."""


class FewBatches(Invariant):
    """A batch is none of the last 16; of one that comes for ever a fact tells, and sooner.

    Of six that are drawn at random one is left out for so long in one draw of twenty. Eight old batches in a row are
    news: where batches are drawn from a list, or dealt in a new order each epoch, a few come again soon by chance. For
    the shortest list whose first epoch has none, 33 batches, the first to come again are eight in one run of 10,000.
    """

    by_chance = True
    breaks = 8

    def __init__(self) -> None:
        super().__init__()
        self._latest: deque[float] = deque(maxlen=BATCHES)

    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        key = measured.get("batch_key", math.nan)
        if math.isnan(key) or (self._latest and key == self._latest[-1]):
            return None
        known = key in self._latest
        self._latest.append(key)
        return known

    def change(self) -> SettingChange:
        return FEW_BATCHES


class InputScale(OfLate):
    """Inputs are not three times as large, or as small, as any in the last 32 measurements."""

    def _value(self, measured: Mapping[str, float]) -> float:
        scale = measured.get("input_scale", math.nan)
        return scale if 0.0 < scale < math.inf else math.nan

    def _is_far(self, least: float, most: float) -> bool:
        return not least / FACTOR <= self._now <= most * FACTOR

    def change(self) -> SettingChange:
        return SettingChange(INPUTS, self._middle, self._now)


class InputCentre(OfLate):
    """The mean of the inputs is as large a share of their root mean square as before.

    As in the last 32 measurements, or beside these by as much as they differ, or by a half if that is more. Where
    inputs are no longer centred, or centred twice, their scale may hardly change.
    """

    def _value(self, measured: Mapping[str, float]) -> float:
        mean, scale = (measured.get(name, math.nan) for name in ("input_mean", "input_scale"))
        return mean / scale if math.isfinite(mean) and 0.0 < scale < math.inf else math.nan

    def _is_far(self, least: float, most: float) -> bool:
        margin = max(most - least, OFF_CENTRE)
        return not least - margin <= self._now <= most + margin

    def change(self) -> SettingChange:
        return SettingChange(CENTRE, f"{self._middle:.2f} of their root mean square", round(self._now, 2))
