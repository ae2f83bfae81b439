"""What holds in every step of a training loop, until it does not: gradients cleared, new batches, one schedule.

Between two updates nobody but the optimizer has to do with the weights, a backward pass begins with no gradient, a
batch is not the one before, nor one of few, something is left to learn, the schedule goes on as it has gone. To see
that needs no statistics, whatever is trained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from rmetric.advice import (
    BATCH,
    CUT_OFF,
    EXAMPLES,
    FIRST_PASSES,
    KEPT_GRADIENT,
    STATISTICS,
    TARGETS,
    UPDATE_GRADIENT,
    WEIGHT,
)
from rmetric.monitor.changes import SettingChange
from rmetric.monitor.loop_invariants.base import Invariant
from rmetric.monitor.loop_invariants.batches import FewBatches, InputCentre, InputScale
from rmetric.monitor.loop_invariants.gradients import Clipping, GradientFalls, NoMore
from rmetric.monitor.loop_invariants.loss import LossFalls, NothingToLearn
from rmetric.monitor.loop_invariants.schedule import RateLeap, ScheduleSpeed

__all__ = ["TENSORS", "TENSORS_REPEATED", "LoopInvariants"]

TENSORS = 4
"""Tensors of weights, of statistics and of a batch of which a sample is taken."""
TENSORS_REPEATED = [f"tensor_{place}_repeated" for place in range(TENSORS)]
"""Names of what is measured of each of a batch's."""
TURNED = "gradient_turned"
FACTS = {
    "weights_changed": SettingChange(WEIGHT, "the updated one", "another"),
    "gradients_kept": SettingChange(KEPT_GRADIENT, "none", "an old one"),
    "batch_repeated": SettingChange(BATCH, "a new one", "the one before"),
    **dict.fromkeys(TENSORS_REPEATED, SettingChange(BATCH, "a new one", "in part the one before")),
    "examples_repeated": SettingChange(EXAMPLES, "different examples", "copies"),
    "targets_alike": SettingChange(TARGETS, "several classes", "one class"),
    "statistics_still": SettingChange(STATISTICS, "moving", "still"),
    TURNED: SettingChange(UPDATE_GRADIENT, "the one of the passes", "its opposite"),
}
"""Truth value of :mod:`~rmetric.monitor.loop_probes`, false while all is well → what has changed where it is not."""
OF_ITS_OWN = ("examples_repeated", "targets_alike", "input_scale", "input_mean", "training_loss")
"""What an agent makes itself: it learns from what it does, and its loss is no measure of success."""


class Fact(Invariant):
    """One of the :data:`FACTS`. Whether the first two hold is for the loop to decide; the others depend on the data."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.by_chance = name not in ("weights_changed", "gradients_kept")
        self._name = name

    def is_broken(self, measured: Mapping[str, float]) -> bool | None:
        value = measured.get(self._name)
        return None if value is None or math.isnan(value) else value != 0.0

    def change(self) -> SettingChange:
        return FACTS[self._name]


class LoopInvariants:
    """Tells which invariants hold no more.

    That one is broken twice in a row (a fallen loss: three times, nothing to learn: four, few batches: eight) is news
    if it held in the 32 measurements before. Once is no news: a checkpoint that is loaded, weights that are averaged,
    pruned or drawn anew are acts of the loop. Nor is what a loop does from its beginning on, or has done before:
    weights that are clipped after each update, gradients that add up, one batch of all data. What comes by chance (few
    and small examples come again, inputs with heavy tails leap) and was seen once must have held for 128, for twice as
    many each further time. What an agent, one that has had a reward, makes of its inputs and its loss is never news.

    **Source:** invariants of training loops as what tells a silent error: TrainCheck, Jiang et al., OSDI 2025, arXiv
    2506.14813. Theirs are inferred from the traces of other runs; these are written down, and a run's own past says
    whether they are meant to hold.
    """

    def __init__(self) -> None:
        self._of_agent = False
        self._invariants: list[Invariant] = [
            *(Fact(name) for name in FACTS if name != TURNED),
            InputScale(),
            Clipping(),
            ScheduleSpeed(),
            RateLeap(),
            FewBatches(),
            NothingToLearn(),
            NoMore("cut_off", CUT_OFF),
            GradientFalls(),
            NoMore("first_passes", FIRST_PASSES),
            Fact(TURNED),
            LossFalls(),
            InputCentre(),
        ]

    def stand_for_more_steps(self) -> None:
        """Take in that records come more seldom: of an epoch in order each of them sees other batches, maybe few."""
        for invariant in self._invariants:
            if invariant.by_chance:
                invariant.begin_anew()

    def update(self, measured: Mapping[str, float], *, planned: bool = False) -> list[SettingChange]:
        """What a step brings that is news.

        ``measured`` has the measurements of the step by name: those of :mod:`~rmetric.monitor.loop_probes`,
        ``training_loss``, ``grad_norm``, ``learning_rate`` and ``step``, the number of tensors that require a gradient
        (``required_gradients``) and of those that are cut off from it (``cut_off``), and the ``reward`` of an agent.
        What is missing or NaN was not looked at. After a change that was announced (``planned``) what held before
        counts no more.
        """
        if planned:
            for invariant in self._invariants:
                invariant.begin_anew()
        if measured.get("training_loss", 0.0) < 0.0:  # no cross-entropy, whose gradient at the logits tells of targets
            measured = {**measured, "targets_alike": math.nan}
        self._of_agent |= math.isfinite(measured.get("reward", math.nan))
        if self._of_agent:
            measured = {**measured, **dict.fromkeys(OF_ITS_OWN, math.nan)}
        found: dict[str, SettingChange] = {}  # a batch that is the one before is so in each of its tensors, too
        for invariant in self._invariants:
            change = invariant.update(measured)
            if change is not None:
                found.setdefault(change.setting, change)
        return [*found.values()]
