"""All invariants of a training loop, and what of them is news."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rmetric.advice import CUT_OFF, FIRST_PASSES
from rmetric.monitor.kept_settings import Change
from rmetric.monitor.loop_invariants.base import Invariant
from rmetric.monitor.loop_invariants.batches import FewBatches, InputCentre, InputScale
from rmetric.monitor.loop_invariants.facts import FACTS, TURNED, Fact
from rmetric.monitor.loop_invariants.gradients import Clipping, GradientFalls, NoMore
from rmetric.monitor.loop_invariants.loss import LossFalls, NothingToLearn
from rmetric.monitor.loop_invariants.schedule import RateLeap, ScheduleSpeed

OF_ITS_OWN = ("examples_repeated", "targets_alike", "input_scale", "input_mean", "training_loss")
"""What an agent makes itself: it learns from what it does, and its loss is no measure of success."""


class LoopInvariants:
    """Tells which invariants hold no more.

    That one is broken twice in a row (a fallen loss: three times, nothing to learn: four, few batches: eight) is news
    if it held in the 32 measurements before. Once is no news: a checkpoint that is loaded, weights that are averaged,
    pruned or drawn anew are acts of the loop. Nor is what a loop does from its beginning on, or has done before:
    weights that are clipped after each update, gradients that add up, one batch of all data. What comes by chance (few
    and small examples come again, inputs with heavy tails leap) need have been seen once to be no news. What an agent,
    one that has had a reward, makes of its inputs and its loss is never news.

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

    def update(self, measured: Mapping[str, float], *, planned: bool = False) -> list[Change]:
        """What a step brings that is news.

        Parameters
        ----------
        measured
            Measurements of the step by name: those of :mod:`~rmetric.monitor.loop_probes`, ``training_loss``,
            ``grad_norm``, ``learning_rate`` and ``step``, the number of tensors that require a gradient
            (``required_gradients``) and of those that are cut off from it (``cut_off``), and the ``reward`` of an
            agent. What is missing or NaN was not looked at.
        planned
            Whether a change was announced: what held before counts no more.
        """
        if planned:
            for invariant in self._invariants:
                invariant.begin_anew()
        if measured.get("training_loss", 0.0) < 0.0:  # no cross-entropy, whose gradient at the logits tells of targets
            measured = {**measured, "targets_alike": math.nan}
        self._of_agent |= math.isfinite(measured.get("reward", math.nan))
        if self._of_agent:
            measured = {**measured, **dict.fromkeys(OF_ITS_OWN, math.nan)}
        found: dict[str, Change] = {}  # a batch that is the one before is so in each of its tensors, too
        for invariant in self._invariants:
            change = invariant.update(measured)
            if change is not None:
                found.setdefault(change.setting, change)
        return [*found.values()]
