"""Loops of which a line is lost: told of once, and soon."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.advice import CENTRE, CLIPPING, CUT_OFF, FIRST_PASSES, INPUTS, LOSS, NORM, RATE, SCHEDULE
from rmetric.monitor.loop_invariants import FACTS, TURNED
from rmetric.monitor.loop_invariants.base import HELD
from rmetric.monitor.loop_invariants.batches import FEW_BATCHES, FewBatches
from rmetric.monitor.loop_invariants.loss import NOTHING_TO_LEARN
from tests.monitor.loop_invariants.common import (
    ONSET,
    STEPS,
    Accumulated,
    Classified,
    Clips,
    Loop,
    Normalised,
    Numbered,
    Scheduled,
    TakesMore,
    TurnedAfterTheCall,
    WeightsNudged,
    told,
)


class NotCleared(Loop):
    def clear(self) -> None:
        if not self.broken:
            super().clear()


class OldCopies(Loop):
    """Forward and backward passes use the weights of the onset, the optimizer changes the true ones."""

    def passes(self) -> Tensor:
        if not self.broken:
            return super().passes()
        parameters = list(self.model.parameters())
        if self.step == ONSET:
            self.copies = [item.detach().clone() for item in parameters]
        true = [item.data for item in parameters]
        for item, old in zip(parameters, self.copies, strict=True):
            item.data = old
        loss = super().passes()
        for item, weights in zip(parameters, true, strict=True):
            item.data = weights
        return loss


class SameBatch(Numbered):
    def number(self) -> int:
        return min(self.step, ONSET)


class SameBatchMasked(SameBatch):
    """The same batch, and beside it a mask that is drawn anew."""

    def __init__(self, **options: Any) -> None:
        super().__init__(model=TakesMore(nn.Linear(8, 3)), **options)

    def passes(self) -> Tensor:
        mask = torch.rand(32, 8, generator=torch.Generator().manual_seed(-self.step)) < 0.5
        loss: Tensor = self.model(self.batch() * mask, mask, self.batch()).square().mean()
        loss.backward()
        return loss


class FewInTurn(Numbered):
    """From the onset on the same six batches are served."""

    def number(self) -> int:
        return ONSET + (self.step - ONSET) % 6 if self.broken else self.step


class FewAtRandom(FewInTurn):
    def number(self) -> int:
        drawn = int(torch.randint(6, (), generator=torch.Generator().manual_seed(self.step)))
        return ONSET + drawn if self.step >= ONSET + 6 else self.step


class NotNormalised(Loop):
    def batch(self) -> Tensor:
        return super().batch() * (4.0 if self.broken else 1.0)


class NotCentred(Loop):
    def batch(self) -> Tensor:
        return super().batch() + (2.0 if self.broken else 0.0)


class AnotherLoss(Loop):
    """The square of a mean in place of the mean of squares."""

    def passes(self) -> Tensor:
        outputs = self.model(self.batch())
        loss: Tensor = 1e-4 * outputs.mean().square() if self.broken else outputs.square().mean()
        loss.backward()
        return loss


class Detached(Loop):
    """No gradient reaches the first layer any more."""

    def passes(self) -> Tensor:
        first, *others = self.model  # type: ignore[misc]
        hidden = first(self.batch())
        loss: Tensor = nn.Sequential(*others)(hidden.detach() if self.broken else hidden).square().mean()
        loss.backward()
        return loss


class DetachedZeros(Detached):
    """The same where gradients are cleared to zeros."""

    def clear(self) -> None:
        self.optimizer.zero_grad(set_to_none=False)


class ClearedEachTime(Accumulated):
    """Gradients are cleared for each micro-batch: only the last one counts."""

    def before_pass(self) -> None:
        if self.broken:
            self.optimizer.zero_grad()


class Copies(Loop):
    def batch(self) -> Tensor:
        batch = super().batch()
        return batch[:16].repeat(2, 1) if self.broken else batch


class Sorted(Classified):
    """The examples come class by class, two batches each."""

    def labels(self) -> Tensor:
        return torch.full((32,), self.step // 2 % 3) if self.broken else super().labels()


class LossDivided(Classified):
    """The loss is divided by the micro-batches once more, after it was logged."""

    def passes(self) -> Tensor:
        loss = functional.cross_entropy(self.model(self.batch()), self.labels())
        (loss / (8 if self.broken else 1)).backward()
        return loss


class StaleStatistics(Normalised):
    def between(self) -> None:
        if self.broken:
            self.model[1].momentum = 0.0  # type: ignore[index, union-attr]


class ClippingLost(Clips):
    bounds = (1e-3, math.inf)


class ClippedTooLow(Clips):
    bounds = (1e-2, 1e-4)


class ClippedAtOnce(Clips):
    bounds = (math.inf, 1e-4)


class TurnedBeforeTheCall(TurnedAfterTheCall):
    def passes(self) -> Tensor:
        loss = super().passes()
        super().clip()
        return loss

    def clip(self) -> None:
        """Nothing more."""


class TurnedInPart(TurnedAfterTheCall):
    """The gradient of one tensor alone is the opposite."""

    def clip(self) -> None:
        if self.broken:
            weight = next(self.model.parameters())
            weight.grad.neg_()


class TurnedMicroBatches(TurnedAfterTheCall):
    """The same where each micro-batch adds to the gradient."""

    def passes(self) -> Tensor:
        super().passes()
        return super().passes()


class SteppedTwice(Scheduled):
    times = 2


class SteppedByEightProcesses(Scheduled):
    times = 8


class RateTenfold(Scheduled):
    """The rate is ten times what it should be, as after a resume with other settings."""

    def passes(self) -> Tensor:
        for group in self.optimizer.param_groups:
            group["lr"] *= 10.0 if self.broken else 1.0
        return super().passes()


BREAKS = {
    NotCleared: FACTS["gradients_kept"].setting,
    WeightsNudged: FACTS["weights_changed"].setting,
    OldCopies: FACTS["weights_changed"].setting,
    SameBatch: FACTS["batch_repeated"].setting,
    SameBatchMasked: FACTS["batch_repeated"].setting,
    NotNormalised: INPUTS,
    NotCentred: CENTRE,
    AnotherLoss: LOSS,
    Detached: CUT_OFF,
    DetachedZeros: CUT_OFF,
    LossDivided: NORM,
    ClearedEachTime: FIRST_PASSES,
    Copies: FACTS["examples_repeated"].setting,
    TurnedAfterTheCall: FACTS[TURNED].setting,
    TurnedBeforeTheCall: FACTS[TURNED].setting,
    TurnedInPart: FACTS[TURNED].setting,
    TurnedMicroBatches: FACTS[TURNED].setting,
    Sorted: FACTS["targets_alike"].setting,
    StaleStatistics: FACTS["statistics_still"].setting,
    ClippingLost: CLIPPING,
    ClippedTooLow: CLIPPING,
    ClippedAtOnce: CLIPPING,
    RateTenfold: RATE,
    SteppedTwice: SCHEDULE,
    SteppedByEightProcesses: SCHEDULE,
}


@pytest.mark.parametrize("broken", BREAKS, ids=lambda kind: kind.__name__)
def test_a_line_that_is_lost_is_told_of_once_within_three_steps(broken: type[Loop], tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    loop = broken(log=log).run()
    [(step, what)] = told(log)
    assert what == BREAKS[broken]
    assert ONSET < step <= ONSET + 2
    assert loop.alerts[0].step < step or (loop.alerts[0].step, loop.alerts[0].cause) == (step, "setting_changed")


@pytest.mark.parametrize("few", [FewInTurn, FewAtRandom], ids=lambda kind: kind.__name__)
def test_few_batches_are_told_of_once_when_eight_old_ones_have_come_in_a_row(few: type[Loop], tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    few(log=log).run(2 * STEPS)
    [(step, what)] = told(log)
    assert what == FEW_BATCHES.setting
    assert ONSET + 6 + FewBatches.breaks - 1 <= step <= ONSET + 20


def test_with_a_record_every_five_steps_it_is_told_of_in_the_second_record(tmp_path: Path) -> None:
    class Late(WeightsNudged):
        @property
        def broken(self) -> bool:
            return self.step >= 5 * (HELD + 2)

    log = tmp_path / "run.jsonl"
    Late(log=log, record_every=5).run(5 * (HELD + 5))
    [(step, _)] = told(log)
    assert step == 5 * (HELD + 4)


@pytest.mark.parametrize("frozen", ["0.weight", "2.bias"])
@pytest.mark.parametrize("record_every", [1, 2])
def test_a_line_that_is_lost_after_a_layer_was_frozen_is_told_of(
    frozen: str, record_every: int, tmp_path: Path
) -> None:
    class Freezes(WeightsNudged):
        @property
        def broken(self) -> bool:
            return self.step >= record_every * (HELD + 12)

        def between(self) -> None:
            self.model.get_parameter(frozen).requires_grad_(self.step < 8)
            super().between()

    log = tmp_path / "run.jsonl"
    Freezes(log=log, record_every=record_every).run(record_every * (HELD + 20))
    assert len(told(log)) == 1


def test_a_resumed_run_knows_what_held(tmp_path: Path) -> None:
    state = Loop().go(ONSET - 1).monitor.state_dict()
    log = tmp_path / "run.jsonl"
    second = WeightsNudged(log=log)
    second.monitor.load_state_dict(state)
    second.step = ONSET - 1
    second.run(8)
    [(step, _)] = told(log)
    assert ONSET < step <= ONSET + 3


class AllMasked(Loop):
    """From the onset on every target is ignored, and the mean is taken over none of them."""

    def passes(self) -> Tensor:
        outputs = self.model(self.batch())
        mask = torch.full((len(outputs),), float(not self.broken))
        loss: Tensor = (outputs.square().mean(dim=-1) * mask).sum() / mask.sum().clamp(min=1.0)
        loss.backward()
        return loss


def test_a_loop_that_masks_every_target_hears_of_it_at_the_fourth_step(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    AllMasked(log=log).run()
    assert told(log) == [(ONSET + 3, NOTHING_TO_LEARN.setting)]
