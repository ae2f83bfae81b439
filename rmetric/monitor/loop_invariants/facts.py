"""Invariants that a single step tells of, each by a truth value."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rmetric.advice import BATCH, EXAMPLES, KEPT_GRADIENT, STATISTICS, TARGETS, UPDATE_GRADIENT, WEIGHT
from rmetric.monitor.kept_settings import Change
from rmetric.monitor.loop_invariants.base import Invariant
from rmetric.monitor.loop_probes.samples import TENSORS_REPEATED

TURNED = "gradient_turned"
FACTS = {
    "weights_changed": Change(WEIGHT, "the updated one", "another"),
    "gradients_kept": Change(KEPT_GRADIENT, "none", "an old one"),
    "batch_repeated": Change(BATCH, "a new one", "the one before"),
    **dict.fromkeys(TENSORS_REPEATED, Change(BATCH, "a new one", "in part the one before")),
    "examples_repeated": Change(EXAMPLES, "different examples", "copies"),
    "targets_alike": Change(TARGETS, "several classes", "one class"),
    "statistics_still": Change(STATISTICS, "moving", "still"),
    TURNED: Change(UPDATE_GRADIENT, "the one of the passes", "its opposite"),
}
"""Truth value of :mod:`~rmetric.monitor.loop_probes`, false while all is well → what has changed where it is not."""


class Fact(Invariant):
    """One of the :data:`FACTS`. Whether the first two hold is for the loop to decide; the others depend on the data."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.by_chance = name not in ("weights_changed", "gradients_kept")
        self._name = name

    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        value = measured.get(self._name)
        return None if value is None or math.isnan(value) else value != 0.0

    def change(self) -> Change:
        return FACTS[self._name]
