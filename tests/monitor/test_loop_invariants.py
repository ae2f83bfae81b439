"""What holds in every step of a loop: which breaks are news, what loops do by right, models that stay what they are."""

from __future__ import annotations

import copy
import io
import logging
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint
from torch.utils.hooks import warn_if_has_hooks

from rmetric.monitor import Alert, TrainingMonitor
from rmetric.monitor.loop_invariants import (
    BROKEN,
    CENTRE,
    CLIPPING,
    CUT_OFF,
    FACTS,
    FEW_BATCHES,
    FIRST_PASSES,
    HELD,
    INPUTS,
    LOSS,
    NORM,
    NOTHING_TO_LEARN,
    RATE,
    SCHEDULE,
    TURNED,
    FewBatches,
    LoopInvariants,
)
from rmetric.monitor.loop_probes import BatchProbe, StatisticsProbe, TargetProbe, UpdateProbe
from rmetric.monitor.repair.policy import Policy
from rmetric.monitor.settings import Change
from rmetric.state import restore, state_of
from tests.helpers import lines_of

ONSET = 40
STEPS = 48


class Loop:
    """A training loop of which a test breaks a line; everything is as usual otherwise."""

    def __init__(self, model: nn.Module | None = None, **options: Any) -> None:
        torch.manual_seed(0)
        self.model: nn.Module = model or nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.step = 0
        self.alerts: list[Alert] = []
        given = {"hardware": False, "announce": False, "detectors": ["r_metric_robust"], **options}
        self.monitor = TrainingMonitor(self.model, self.optimizer, on_alert=self.alerts.append, **given)

    def batch(self) -> Tensor:
        return torch.randn(32, 8, generator=torch.Generator().manual_seed(self.step))

    def passes(self) -> Tensor:
        loss: Tensor = self.model(self.batch()).square().mean()
        loss.backward()
        return loss

    def clip(self) -> None:
        """After the monitor, before the update."""

    def clear(self) -> None:
        self.optimizer.zero_grad()

    def between(self) -> None:
        """After the update."""

    def go(self, steps: int) -> Loop:
        for _ in range(steps):
            self.step += 1
            loss = self.passes()
            self.monitor.step(loss)
            self.clip()
            self.optimizer.step()
            self.clear()
            self.between()
        return self

    def run(self, steps: int = STEPS) -> Loop:
        self.go(steps)
        self.monitor.close()
        return self

    @property
    def broken(self) -> bool:
        return self.step >= ONSET

    @torch.no_grad()
    def nudge(self) -> None:
        for parameter in self.model.parameters():
            parameter.mul_(1.0 + 1e-6)


class NotCleared(Loop):
    def clear(self) -> None:
        if not self.broken:
            super().clear()


class WeightsNudged(Loop):
    def between(self) -> None:
        if self.broken:
            self.nudge()


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


class Numbered(Loop):
    """Its batches have numbers."""

    def number(self) -> int:
        return self.step

    def batch(self) -> Tensor:
        step, self.step = self.step, self.number()
        batch = super().batch()
        self.step = step
        return batch


class SameBatch(Numbered):
    def number(self) -> int:
        return min(self.step, ONSET)


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


class Accumulated(Loop):
    """Four micro-batches a step."""

    def passes(self) -> Tensor:
        for part in self.batch().chunk(4):
            self.before_pass()
            loss: Tensor = self.model(part).square().mean() / 4
            loss.backward()
        return loss

    def before_pass(self) -> None:
        """Called before each."""


class ClearedEachTime(Accumulated):
    """Gradients are cleared for each micro-batch: only the last one counts."""

    def before_pass(self) -> None:
        if self.broken:
            self.optimizer.zero_grad()


class Copies(Loop):
    def batch(self) -> Tensor:
        batch = super().batch()
        return batch[:16].repeat(2, 1) if self.broken else batch


class Classified(Loop):
    """Each example has one of three classes."""

    def labels(self) -> Tensor:
        return torch.randint(3, (32,), generator=torch.Generator().manual_seed(self.step))

    def passes(self) -> Tensor:
        loss = functional.cross_entropy(self.model(self.batch()), self.labels())
        loss.backward()
        return loss


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


class Normalised(Loop):
    """A model with batch norm."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            model=nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)), **options
        )


class StaleStatistics(Normalised):
    def between(self) -> None:
        if self.broken:
            self.model[1].momentum = 0.0  # type: ignore[index, union-attr]


class Clips(Loop):
    """Gradients are clipped to a norm that changes at the onset; infinity: not at all."""

    bounds = (1e-3, 1e-3)

    def clip(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.bounds[self.broken])


class ClippingLost(Clips):
    bounds = (1e-3, math.inf)


class ClippedTooLow(Clips):
    bounds = (1e-2, 1e-4)


class ClippedAtOnce(Clips):
    bounds = (math.inf, 1e-4)


class TurnedAfterTheCall(Loop):
    """Updates go up the loss."""

    def clip(self) -> None:
        if self.broken:
            for parameter in self.model.parameters():
                assert parameter.grad is not None
                parameter.grad.neg_()


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
            assert weight.grad is not None
            weight.grad.neg_()


class TurnedMicroBatches(TurnedAfterTheCall):
    """The same where each micro-batch adds to the gradient."""

    def passes(self) -> Tensor:
        super().passes()
        return super().passes()


class Scheduled(Loop):
    """A learning rate that falls along a cosine."""

    times = 1

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # Some steps on: at its very beginning a cosine is all curve.
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: (1.0 + math.cos(math.pi * (step + 1000) / 4000)) / 2.0
        )

    def between(self) -> None:
        for _ in range(self.times if self.broken else 1):
            self.scheduler.step()


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


def told(log: Path) -> list[tuple[int, str]]:
    """Changes that are alerts; one with a message of its own, as where layers are frozen, is a note."""
    lines = [line for line in lines_of(log.read_bytes()) if line["event"] == "SETTING_CHANGED"]
    return [(line["step"], line["setting"]) for line in lines if "message" not in line]


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


class InTurn(Loop):
    """Four micro-batches a step."""

    def passes(self) -> Tensor:
        for _ in range(4):
            loss: Tensor = self.model(self.batch()).square().mean()
            (loss / 4).backward()
        return loss


class ClearedToZero(Loop):
    def clear(self) -> None:
        self.optimizer.zero_grad(set_to_none=False)


class Clipped(Loop):
    """A critic's weights are clipped after each update."""

    @torch.no_grad()
    def between(self) -> None:
        for parameter in self.model.parameters():
            parameter.clamp_(-0.1, 0.1)


class ClippedFromTheOnsetOn(Clipped):
    """The bound begins to bind late, for more and more weights."""

    @torch.no_grad()
    def between(self) -> None:
        if self.broken:
            bound = float(self.model[0].weight.abs().max())
            self.model[0].weight.clamp_(-0.99 * bound, 0.99 * bound)


class RenormalisedInThePass(Loop):
    """Vectors of tokens grow into the bound that the forward pass keeps."""

    def __init__(self, **options: Any) -> None:
        table = nn.Embedding(20, 8, max_norm=8.0)
        super().__init__(nn.Sequential(table, nn.Linear(8, 3)), **options)
        self.optimizer.param_groups[0]["lr"] = 0.05

    def batch(self) -> Tensor:
        return torch.randint(20, (32,), generator=torch.Generator().manual_seed(self.step))

    def passes(self) -> Tensor:
        loss: Tensor = -self.model(self.batch()).square().mean()
        loss.backward()
        return loss


class Averaged(Loop):
    """Every 20 steps the weights are those of an average, or of a checkpoint, or pruned."""

    def between(self) -> None:
        if self.step % 20 == 0:
            self.nudge()


class EvaluatedOnAnAverage(Loop):
    @torch.no_grad()
    def between(self) -> None:
        kept = copy.deepcopy(self.model.state_dict())
        self.nudge()
        self.model.eval()
        self.model(torch.ones(4, 8))
        self.model.train()
        self.model.load_state_dict(kept)


class AllData(Loop):
    def batch(self) -> Tensor:
        return torch.linspace(-1.0, 1.0, 256).view(32, 8)


class PassesInTurn(Numbered):
    """Each batch is used three times, as in the epochs of a policy."""

    def number(self) -> int:
        return self.step // 3


class PassesOverEight(Numbered):
    """Eight batches are passed over four times, then come new ones, as in the epochs of a policy."""

    def number(self) -> int:
        return 8 * (self.step // 32) + self.step % 8


class EpochsOf8(Numbered):
    """Batches in the same order in each epoch."""

    batches = 8

    def number(self) -> int:
        return self.step % self.batches


class EpochsOf40(EpochsOf8):
    batches = 40


class Shuffled(Numbered):
    """The same 40 batches, in another order in each epoch."""

    def number(self) -> int:
        epoch, place = divmod(self.step, 40)
        return int(torch.randperm(40, generator=torch.Generator().manual_seed(epoch))[place])


class ComesBack(Numbered):
    """Seven batches are served once more, as after a step back."""

    def number(self) -> int:
        return self.step - 7 if self.broken else self.step


class SharpnessAware(Loop):
    def passes(self) -> Tensor:
        super().passes()
        self.nudge()
        self.optimizer.zero_grad()
        loss = super().passes()
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.div_(1.0 + 1e-6)
        return loss


class AnotherGroup(Loop):
    """A new head with its own learning rate, as in fine-tuning."""

    def between(self) -> None:
        if self.step == ONSET:
            self.model.append(nn.Linear(3, 3))  # type: ignore[operator]
            self.optimizer.add_param_group({"params": self.model[-1].parameters(), "lr": 0.1})  # type: ignore[index]


class LivelyInputs(Loop):
    def batch(self) -> Tensor:
        return super().batch() * (0.5 + self.step % 7)


class Skipped(Loop):
    """Every tenth update is left out."""

    def clear(self) -> None:
        super().clear()
        if self.step % 10 == 0:
            self.step += 1
            super().passes()
            super().clear()


class ClippedByValue(Loop):
    def clip(self) -> None:
        torch.nn.utils.clip_grad_value_(self.model.parameters(), 1e-3)


class ClippedByThePast(Loop):
    """Gradients are clipped to the median of the last eight norms."""

    def clip(self) -> None:
        norms = self.norms = [*getattr(self, "norms", [])[-7:], self.norm()]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), sorted(norms)[len(norms) // 2])

    def norm(self) -> float:
        return float(
            torch.nn.utils.get_total_norm([item.grad for item in self.model.parameters() if item.grad is not None])
        )


class Frozen(Classified):
    """The first layer, whose gradients are many times as large, is frozen on purpose."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        with torch.no_grad():
            self.model[0].weight.mul_(0.05)  # type: ignore[index, union-attr, operator]
            self.model[2].weight.mul_(20.0)  # type: ignore[index, union-attr, operator]

    def between(self) -> None:
        if self.step == ONSET:
            self.model[0].requires_grad_(False)  # type: ignore[index]


class PrunedByTorch(Loop):
    """Weights are parameters of another name from then on, each with a mask."""

    def between(self) -> None:
        if self.step == ONSET:
            for layer in (self.model[0], self.model[2]):  # type: ignore[index]
                prune.l1_unstructured(layer, "weight", amount=0.3)


class TrainedInBlocks(Loop):
    """Of two layers of as many tensors one is frozen, in turn."""

    def __init__(self, **options: Any) -> None:
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        model[2].requires_grad_(False)
        super().__init__(model, **options)

    def between(self) -> None:
        if self.step % ONSET == 0:
            for parameter in self.model.parameters():
                parameter.requires_grad_(not parameter.requires_grad)


class Faded(Loop):
    """A term of the loss with a head of its own; its weight falls to 0 in steps of 2 %."""

    def __init__(self, **options: Any) -> None:
        model = nn.ModuleDict({name: nn.Linear(8, 3) for name in ("main", "other")})
        super().__init__(model=model, **options)

    def passes(self) -> Tensor:
        main, other = (part(self.batch()).square().mean() for part in self.model.values())  # type: ignore[operator]
        loss: Tensor = main + max(0.0, 1.0 - self.step / 50) * other
        loss.backward()
        return loss


class SharedByExperts(Loop):
    """A batch in eight reaches one of two layers only."""

    def passes(self) -> Tensor:
        first, other = self.model[0], self.model[2]  # type: ignore[index]
        out = first(self.batch()).square().mean()
        loss: Tensor = out if self.step % 8 == 0 else out + other(torch.ones(4, 16)).square().mean()
        loss.backward()
        return loss


class ClippedNowAndThen(Clips):
    """Only what is longer than usual is clipped."""

    bounds = (0.2, 0.2)

    def batch(self) -> Tensor:
        return super().batch() * (2.0 if self.step % 9 == 0 else 1.0)


class UnscaledAfterwards(Loop):
    """The monitor sees scaled gradients, and their scale doubles now and then."""

    def passes(self) -> Tensor:
        loss: Tensor = self.model(self.batch()).square().mean()
        (loss * self.scale).backward()
        return loss

    @property
    def scale(self) -> float:
        return 1024.0 * 2.0 ** (self.step // 20)

    @torch.no_grad()
    def clip(self) -> None:
        for item in self.model.parameters():
            if item.grad is not None:
                item.grad.div_(self.scale)


class Noisy(Loop):
    """Noise is added to the gradient, as for privacy, as large as it is."""

    @torch.no_grad()
    def clip(self) -> None:
        for parameter in self.model.parameters():
            assert parameter.grad is not None
            parameter.grad += torch.randn_like(parameter.grad) * parameter.grad.square().mean().sqrt()


class Penalised(Loop):
    """A penalty of weights is added to the gradient by hand, which turns that of a single number for good."""

    def __init__(self, **options: Any) -> None:
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        model.scale = nn.Parameter(torch.ones(()))
        super().__init__(model, **options)

    def passes(self) -> Tensor:
        loss: Tensor = (self.model(self.batch()) * self.model.scale).square().mean()
        loss.backward()
        return loss

    @torch.no_grad()
    def clip(self) -> None:
        scale = self.model.scale
        assert isinstance(scale, nn.Parameter) and scale.grad is not None
        scale.grad.copy_(-scale.grad if self.step >= ONSET else scale.grad)


class GoesUpNowAndThen(TurnedAfterTheCall):
    """Every seventh time, two updates go up the loss."""

    @property
    def broken(self) -> bool:
        return self.step % 7 < 2


class WarmedUp(Loop):
    """A schedule with kinks: up, flat, down, and steeper down."""

    def between(self) -> None:
        corners = torch.tensor([0.0, 20.0, 40.0, 60.0, 100.0]), torch.tensor([0.0, 1e-3, 1e-3, 7e-4, 0.0])
        right = int(torch.searchsorted(corners[0], float(self.step), right=True).clamp(max=4))
        (x0, x1), (y0, y1) = corners[0][right - 1 : right + 1], corners[1][right - 1 : right + 1]
        self.optimizer.param_groups[0]["lr"] = float(y0 + (y1 - y0) * (self.step - x0) / (x1 - x0))


class Restarted(Loop):
    """A cosine that begins again and again, from the same rate."""

    def between(self) -> None:
        self.optimizer.param_groups[0]["lr"] = 1e-3 * (1.01 + math.cos(math.pi * (self.step % 40) / 40)) / 2.0


class OneClassNowAndThen(Classified):
    """So many examples are of the first class that some batches have no other."""

    def labels(self) -> Tensor:
        return super().labels() if self.step % 7 else torch.zeros(32, dtype=torch.long)


class FewExamples(Loop):
    """Examples are drawn with replacement from very few."""

    def batch(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.step)
        return torch.linspace(-1.0, 1.0, 160).view(20, 8)[torch.randint(20, (32,), generator=generator)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "usual",
    [
        Loop, InTurn, ClearedToZero, Clipped, ClippedFromTheOnsetOn, RenormalisedInThePass, Averaged,
        EvaluatedOnAnAverage, AllData, PassesInTurn, PassesOverEight,
        EpochsOf8, EpochsOf40, Shuffled, ComesBack,
        SharpnessAware, AnotherGroup, LivelyInputs, Skipped, Normalised, Clips, ClippedByValue, ClippedByThePast,
        ClippedNowAndThen, UnscaledAfterwards, Scheduled, WarmedUp, Restarted, FewExamples, Classified,
        OneClassNowAndThen, Frozen, PrunedByTorch, TrainedInBlocks, Faded,
        SharedByExperts, Accumulated, Noisy, Penalised, GoesUpNowAndThen,
    ],
    ids=lambda kind: kind.__name__,
)  # fmt: skip
def test_what_a_loop_does_by_right_is_not_told_of(usual: type[Loop], tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    usual(log=log).run(2 * STEPS)
    assert told(log) == []


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


def test_an_act_before_a_skipped_update_is_still_one_act(tmp_path: Path) -> None:
    class SkippedAfterAnAct(Loop):
        """A checkpoint is loaded, and the update of the next step left out, as after an overflow."""

        def go(self, steps: int) -> Loop:
            for _ in range(steps):
                self.step += 1
                self.monitor.step(self.passes())
                if self.step != ONSET + 1:
                    self.optimizer.step()
                self.clear()
                if self.step == ONSET:
                    self.nudge()
            return self

    log = tmp_path / "run.jsonl"
    SkippedAfterAnAct(log=log).run()
    assert told(log) == []


def test_an_announced_change_is_no_news_and_what_held_before_it_counts_no_more() -> None:
    class Announced(WeightsNudged):
        def between(self) -> None:
            if self.step == ONSET:
                self.monitor.planned("masks after each update")
            super().between()

    assert Announced().run().alerts == []


def test_a_policy_that_changes_weights_after_an_update_is_none_of_it(tmp_path: Path) -> None:
    class Smooths(Policy):
        """Changes the weights after each update from the onset on."""

        def after_update(self) -> None:
            if loop.broken:
                loop.nudge()

    log = tmp_path / "run.jsonl"
    loop = Loop(log=log, policy=Smooths())
    loop.run()
    assert told(log) == []


def test_a_resumed_run_knows_what_held(tmp_path: Path) -> None:
    state = Loop().go(ONSET - 1).monitor.state_dict()
    log = tmp_path / "run.jsonl"
    second = WeightsNudged(log=log)
    second.monitor.load_state_dict(state)
    second.step = ONSET - 1
    second.run(8)
    [(step, _)] = told(log)
    assert ONSET < step <= ONSET + 3


def test_an_epoch_of_which_every_tenth_batch_is_looked_at_from_some_step_on_has_not_become_shorter() -> None:
    invariants = LoopInvariants()
    assert not any(invariants.update({"batch_key": float(step % 40)}) for step in range(80))
    invariants.stand_for_more_steps()
    assert not any(invariants.update({"batch_key": float(step % 40)}) for step in range(80, 1000, 10))


@pytest.mark.filterwarnings("ignore:.torch.jit.trace:DeprecationWarning")
def test_a_model_can_be_copied_saved_and_used_elsewhere_and_has_no_hook_at_the_end() -> None:
    loop = Loop()
    twin = copy.deepcopy(loop.model)
    torch.save(loop.model, io.BytesIO())
    before = loop.monitor._measurer._batches
    twin(torch.ones(2, 8))
    assert before.measure() == {}  # the copy is not looked at
    compiled = torch.compile(loop.model, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2, 8)), loop.model(torch.ones(2, 8)))
    traced = torch.jit.trace(loop.model, torch.ones(2, 8))
    assert torch.equal(traced(torch.ones(3, 8)), loop.model(torch.ones(3, 8)))
    each = vmap(grad(lambda weights, x: functional_call(loop.model, weights, (x,)).sum()), (None, 0))
    each(dict(loop.model.named_parameters()), torch.ones(3, 8))
    loop.run(8)
    assert loop.monitor.step_number == 8
    assert not loop.model._forward_pre_hooks and not loop.model._forward_hooks
    assert not any(parameter._backward_hooks for parameter in loop.model.parameters())
    assert not loop.optimizer._optimizer_step_post_hooks  # type: ignore[attr-defined]


def test_a_file_of_a_model_that_is_watched_can_be_read_without_this_package() -> None:
    loop, file = Loop(), io.BytesIO()
    torch.save(loop.model, file)
    assert b"rmetric" not in file.getvalue()
    twin = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    assert torch.equal(twin(torch.ones(2, 8)), loop.model(torch.ones(2, 8)))
    again = copy.deepcopy(twin)
    assert torch.equal(torch.compile(again, backend="eager")(torch.ones(2, 8)), twin(torch.ones(2, 8)))


def test_a_model_that_is_sent_to_a_process_warns_of_no_hook() -> None:
    loop = Loop().go(2)
    once = loop.passes
    loop.passes = lambda: once() + once()  # type: ignore[method-assign]
    loop.go(2)
    assert all(parameter._backward_hooks for parameter in loop.model.parameters())
    for parameter in loop.model.parameters():
        warn_if_has_hooks(parameter)  # as torch does before it sends one
    loop.monitor.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda model: model(3, None),
        lambda model: model({"a": [torch.ones(0), torch.eye(3).to_sparse()]}, None),
        lambda model: model(torch.ones(2, 2, dtype=torch.complex64), None),
    ],
)
def test_what_is_no_plain_tensor_is_not_looked_at(call: Callable[[nn.Module], None]) -> None:
    class Takes(nn.Module):
        def forward(self, *_: Any) -> None:
            pass

    model = Takes()
    probe = BatchProbe(model)
    call(model)
    assert probe.measure() == {} and not probe.closed


def test_tensors_are_found_wherever_they_are_in_the_arguments() -> None:
    class Takes(nn.Module):
        def forward(self, *_: Any, **__: Any) -> None:
            pass

    model = Takes()
    probe = BatchProbe(model)
    scales = []
    for batch in (torch.full((4, 2), 3.0), torch.full((4, 2), 3.0), torch.full((3, 2), 3.0)):
        model(7, {"mask": torch.ones(4, dtype=torch.bool)}, inputs=[batch])
        measured = probe.measure()
        scales.append((measured["input_scale"], measured["batch_repeated"]))
        assert float(measured["input_mean"]) == 3.0  # type: ignore[arg-type]
    assert [float(scale) for scale, _ in scales if scale is not None] == [3.0, 3.0, 3.0]
    assert scales[0][1] is None
    assert [bool(repeated) for _, repeated in scales[1:]] == [True, False]


def test_a_model_that_a_loop_calls_in_parts_is_looked_at_and_one_that_is_called_as_a_whole_by_itself_alone() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    probe = BatchProbe(model)
    model[1](model[0](torch.full((4, 2), 3.0)))
    assert float(probe.measure()["input_scale"]) == 3.0  # type: ignore[arg-type]
    model(torch.full((4, 2), 5.0))
    assert float(probe.measure()["input_scale"]) == 5.0  # type: ignore[arg-type]
    assert not any(part._forward_pre_hooks for part in model)
    model[0](torch.ones(4, 2))
    assert probe.measure() == {}


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_a_part_that_takes_no_hook_is_passed_by() -> None:
    model = nn.Sequential(torch.jit.script(nn.Linear(2, 3)), nn.Linear(3, 1))
    probe = BatchProbe(model)
    model[1](model[0](torch.ones(4, 2)))
    assert "batch_key" in probe.measure()


def test_of_a_container_the_first_module_that_is_called_tells_the_batch() -> None:
    parts = nn.ModuleDict({"body": nn.ModuleList([nn.Linear(2, 3), nn.Linear(3, 3)]), "head": nn.Linear(3, 1)})
    probe = BatchProbe(parts)
    repeated = []
    for batch in (torch.full((4, 2), 3.0), torch.full((4, 2), 3.0), torch.ones(4, 2)):
        hidden = batch
        for layer in parts["body"]:
            hidden = layer(hidden)
        parts["head"](hidden)
        measured = probe.measure()
        repeated.append(measured["batch_repeated"])
        assert float(measured["input_scale"]) == pytest.approx(float(batch[0, 0]))
    assert repeated[0] is None and [bool(value) for value in repeated[1:]] == [True, False]
    probe.close()
    assert not any(module._forward_pre_hooks for module in parts.modules())


def of_acting(model: nn.Module) -> Tensor:
    for _ in range(9):  # more than are remembered: what was returned before is gone
        acted = model(torch.full((2,), 9.0))
    learned: Tensor = model(torch.full((4, 2), 5.0)).sum()
    learned.backward()
    return acted


def of_pairs(model: nn.Module) -> None:
    (model(torch.full((4, 2), 5.0)) * model(torch.full((3, 2), 9.0)).sum()).sum().backward()


def of_micro_batches(model: nn.Module) -> None:
    for batch in (torch.full((4, 2), 5.0), torch.full((3, 2), 9.0)):
        model(batch).sum().backward()


def of_checkpoints(model: nn.Module) -> None:
    checkpoint(model, torch.full((4, 2), 5.0), use_reentrant=False).sum().backward()


def without_gradient(model: nn.Module) -> Tensor:
    model(torch.full((4, 2), 5.0))
    kept: Tensor = model(torch.full((3, 2), 9.0))
    return kept


@pytest.mark.parametrize("passes", [of_acting, of_pairs, of_micro_batches, of_checkpoints, without_gradient])
def test_of_several_passes_the_first_of_which_the_result_gets_a_gradient_tells_the_batch(
    passes: Callable[[nn.Module], Tensor | None],
) -> None:
    model = nn.Linear(2, 1)
    probe = BatchProbe(model)
    for step in range(4):
        kept = passes(model)  # a loop's names last until they are used again
        measured = probe.measure()
        if step > 1:  # before it is not known that there are several, and that the first is no training
            assert probe.shape == ((4, 2),) and float(measured["input_scale"]) == 5.0  # type: ignore[arg-type]
        warn_if_has_hooks(model.weight if kept is None else kept)


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x.clone().index_put_((torch.tensor(7), torch.tensor(5)), x[7, 5].nextafter(torch.tensor(9.0))),
        lambda x: x.flip(0),
        lambda x: -x,
        lambda x: x[:-1],
    ],
)
def test_another_batch_has_another_key_and_the_same_one_the_same(other: Callable[[Tensor], Tensor]) -> None:
    model = nn.Identity()
    probe = BatchProbe(model)
    first = torch.randn(16, 8)
    keys = []
    for batch in (first, other(first), first.clone()):
        model(batch)
        key = probe.measure()["batch_key"]
        assert key is not None
        keys.append(float(key))
    assert keys[0] == keys[2] != keys[1]
    assert all(key == float(torch.tensor(key, dtype=torch.float32)) for key in keys)


def test_a_probe_that_fails_ends_itself_and_not_the_training(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> Tensor:
        raise RuntimeError("no sample of this")

    for module in ("batch", "statistics", "update"):
        monkeypatch.setattr(f"rmetric.monitor.loop_probes.{module}.sample_of", fails)
    loop = Normalised().run(8)
    assert loop.monitor.step_number == 8
    ended = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    why = "are no longer looked at: RuntimeError: no sample of this"
    watched = (BatchProbe.watched, StatisticsProbe.watched, UpdateProbe.watched)
    assert sorted(ended) == sorted(f"{what} {why}" for what in watched)


def broken_after(held: int, breaks: int) -> list[Change]:
    invariants = LoopInvariants()
    values = [0.0] * held + [1.0] * breaks
    return [change for value in values for change in invariants.update({"weights_changed": value})]


def test_news_needs_to_have_held_for_long_and_to_be_broken_twice() -> None:
    assert broken_after(HELD, BROKEN) == [FACTS["weights_changed"]]
    assert broken_after(HELD - 1, 100) == []
    assert broken_after(HELD, BROKEN - 1) == []


def test_what_has_been_seen_once_is_known() -> None:
    invariants = LoopInvariants()
    values = ([0.0] * HELD + [1.0] * BROKEN) * 5
    assert sum(len(invariants.update({"batch_repeated": value})) for value in values) == 1


@pytest.mark.parametrize(("name", "news"), [("weights_changed", 1), ("gradients_kept", 1), ("batch_repeated", 0)])
def test_a_batch_that_came_twice_by_chance_may_do_so_again(name: str, news: int) -> None:
    invariants = LoopInvariants()
    values = [0.0] * HELD + [1.0] + [0.0] * HELD + [1.0] * BROKEN
    assert sum(len(invariants.update({name: value})) for value in values) == news


def test_inputs_with_heavy_tails_are_no_news() -> None:
    invariants = LoopInvariants()
    scales = [1.0] * HELD + [10.0] + [1.0] * HELD + [100.0, 200.0]
    assert not any(invariants.update({"input_scale": scale}) for scale in scales)


@pytest.mark.parametrize(
    ("losses", "norms", "news"),
    [
        ([0.0] * 8, [0.0] * 8, [NOTHING_TO_LEARN]),  # every target is masked
        ([0.0] * 3, [0.0] * 3, []),
        ([0.0] * 8, [0.1] * 8, []),  # GRPO: the loss is 0, its gradient is not
        ([2.0] * 8, [0.0] * 8, []),  # the robust R-Metric's
        ([0.0, 0.1, *[0.0] * 8], [0.0, 0.1, *[0.0] * 8], []),  # a hinge loss that comes to its end
    ],
)
def test_nothing_to_learn_any_more_is_told_of(losses: list[float], norms: list[float], news: list[Change]) -> None:
    invariants = LoopInvariants()
    pairs = [*[(1.0, 1.0)] * HELD, *zip(losses, norms, strict=True)]
    found = [invariants.update({"training_loss": loss, "grad_norm": norm}) for loss, norm in pairs]
    assert [change for changes in found for change in changes] == news


@pytest.mark.parametrize(
    ("losses", "news"),
    [
        ([1e-3] * 8, [Change(LOSS, "at least 0.02", 1e-3)]),  # (mean of the errors)² in place of the mean of errors²
        ([1e-3] * 2 + [0.02] * 40 + [1e-3] * 8, []),  # low before, by chance
        ([1e-2] * 8, []),
        ([0.02 * 0.9**step for step in range(99)], []),
        ([0.0] * 8, []),  # a hinge loss
        ([-0.5] * 8, []),  # a log-likelihood
    ],
)
def test_a_loss_that_falls_tenfold_at_once_is_told_of(losses: list[float], news: list[Change]) -> None:
    invariants = LoopInvariants()
    found = [invariants.update({"training_loss": loss}) for loss in [0.03, *[0.02] * HELD, *losses]]
    assert [change for changes in found for change in changes] == news


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


def test_the_number_of_targets_that_the_trainer_hands_over_is_none_of_the_inputs() -> None:
    class Takes(nn.Module):
        def forward(self, **_: Any) -> None:
            pass

    model = Takes()
    probe = BatchProbe(model)
    model(num_items_in_batch=torch.tensor(512.0), input_ids=torch.arange(8).reshape(2, 4))
    assert probe.measure()["input_scale"] is None
    model(num_items_in_batch=torch.tensor(512.0), inputs=torch.full((2, 4), 3.0))
    assert float(probe.measure()["input_scale"]) == 3.0


def test_what_was_not_looked_at_neither_holds_nor_breaks() -> None:
    invariants = LoopInvariants()
    found = [invariants.update({"gradients_kept": 0.0}) for _ in range(HELD)]
    found += [invariants.update({}), invariants.update({"gradients_kept": 1.0}), invariants.update({})]
    found.append(invariants.update({"gradients_kept": 1.0}))
    assert [bool(changes) for changes in found] == [False] * (HELD + 3) + [True]


@pytest.mark.parametrize("factor", [1 / 255, 1 / 3.1, 1 / 2.9, 2.9, 3.1, 255.0])
def test_inputs_of_another_scale_are_news_from_a_factor_of_three_on(factor: float) -> None:
    invariants = LoopInvariants()
    scales = [0.5] * HELD + [0.5 * factor] * 50
    found = [change for scale in scales for change in invariants.update({"input_scale": scale})]
    far = not 1 / 3 <= factor <= 3
    assert found == ([Change(INPUTS, 0.5, 0.5 * factor)] if far else [])


@pytest.mark.parametrize(("reward", "news"), [(math.nan, 1), (0.5, 0)])
def test_what_an_agent_makes_of_its_inputs_and_loss_is_no_news(reward: float, news: int) -> None:
    told, again = LoopInvariants(), LoopInvariants()
    usual = {"examples_repeated": 0.0, "input_scale": 1.0, "training_loss": 2.0, "batch_key": math.nan}
    later = {"examples_repeated": 1.0, "input_scale": 9.0, "training_loss": 0.001}
    assert not told.update({**usual, "reward": reward})
    assert not any(told.update(usual) for _ in range(40))
    restore(again, state_of(told))
    found = [change for invariants in (told, again) for _ in range(4) for change in invariants.update(later)]
    assert len(found) == 6 * news


@pytest.mark.parametrize(
    ("usual", "now", "news"),
    [
        ([0.0, 0.1], 0.7, True),  # the mean is not subtracted any more
        ([0.6, 0.5], -0.1, True),  # it is subtracted twice
        ([0.0, 0.1], 0.5, False),  # what an agent sees, as it learns
        ([-0.5, 0.5], 0.9, False),  # batches that differ much
        ([1.0, 1.0], 0.6, False),
    ],
)
def test_inputs_around_another_mean_are_news(usual: list[float], now: float, news: bool) -> None:
    invariants = LoopInvariants()
    shares = [*usual * (HELD // 2), *[now] * 4]
    measured = [{"input_mean": 2.0 * share, "input_scale": 2.0} for share in shares]
    found = [change for step in measured for change in invariants.update(step)]
    assert [change.setting for change in found] == [CENTRE] * news


def test_a_scale_that_grows_gradually_and_one_of_zero_or_infinity_are_no_news() -> None:
    invariants = LoopInvariants()
    scales = [1.05**step for step in range(200)] + [0.0, float("inf"), float("nan")] * 20
    assert not any(invariants.update({"input_scale": scale}) for scale in scales)


def told_of(measured: Iterable[dict[str, float]]) -> list[Change]:
    invariants = LoopInvariants()
    return [change for values in measured for change in invariants.update(values)]


@pytest.mark.parametrize(
    ("left", "told"),
    [
        (0.25, []),
        (0.5, []),
        (0.05, [Change(CLIPPING, 1.0, 0.2)]),
        (1.0, [Change(CLIPPING, 1.0, "none at 4")]),
        (4.0, [Change(CLIPPING, 1.0, "none, but lengthening to 16")]),
    ],
)
def test_another_norm_of_clipping_is_news_from_a_factor_of_three_on(left: float, told: list[Change]) -> None:
    usual, after = {"grad_norm": 4.0, "gradient_left": 0.25}, {"grad_norm": 4.0, "gradient_left": left}
    assert told_of([usual] * (HELD + 1) + [after] * 5) == told


def test_gradients_that_are_not_longer_than_what_was_clipped_may_be_left_alone() -> None:
    clipped, short = {"grad_norm": 4.0, "gradient_left": 0.25}, {"grad_norm": 0.5, "gradient_left": 1.0}
    assert told_of(([clipped] * 3 + [short] * 3) * 20) == []


def test_a_first_gradient_that_is_clipped_is_longer_than_what_was_left_alone() -> None:
    alone, spike = {"grad_norm": 0.1, "gradient_left": 1.0}, {"grad_norm": 100.0, "gradient_left": 0.01}
    assert told_of([alone] * 2 * HELD + [spike] * 4 + [alone] * HELD) == []


@pytest.mark.parametrize("broken", [math.nan, math.inf, 0.0])
def test_clipping_is_not_judged_where_a_norm_is_none(broken: float) -> None:
    usual = {"grad_norm": 4.0, "gradient_left": 0.25}
    assert told_of([usual] * 2 * HELD + [{"grad_norm": broken, "gradient_left": math.nan}] * 4 + [usual] * 4) == []


@pytest.mark.parametrize("times", [1.0, 1.5, -1.0, 0.0, 2.0, 3.0])
@pytest.mark.parametrize("every", [1, 10])
def test_a_schedule_that_goes_a_whole_number_of_times_as_fast_is_news(times: float, every: int) -> None:
    steps = range(every, 200 * every, every)
    onset = 100 * every
    rates = [1e-3 - 1e-7 * (min(step, onset) + times * max(step - onset, 0)) for step in steps]
    found = told_of({"step": float(step), "learning_rate": rate} for step, rate in zip(steps, rates, strict=True))
    assert found == ([Change(SCHEDULE, 1.0, times)] if times > 1.5 else [])


@pytest.mark.parametrize(
    ("factor", "steps", "told"), [(2.9, 50, 0), (10.0, 50, 1), (10.0, 1, 0), (math.nan, 50, 0), (0.1, 50, 0)]
)
def test_a_rate_that_leaps_and_stays_is_news(factor: float, steps: int, told: int) -> None:
    rates = [1e-3] * 2 * HELD + [1e-3 * factor] * steps + [1e-3] * HELD
    assert told_of({"learning_rate": rate} for rate in rates) == [Change(RATE, 1e-3, 1e-3 * factor)] * told


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x,
        lambda x: x.to(memory_format=torch.channels_last),
        lambda x: x[:, :, None].expand(-1, -1, 1_000_000, -1, -1),  # 92 GB, if it were copied
    ],
)
def test_copies_are_found_whatever_the_layout_of_a_batch(layout: Callable[[Tensor], Tensor]) -> None:
    model = nn.Identity()
    probe = BatchProbe(model)
    images = torch.randn(12, 3, 8, 8)
    found = []
    for batch in (images, images[:6].repeat(2, 1, 1, 1), images[:7].repeat(2, 1, 1, 1)[:12]):
        with torch.autocast("cpu", torch.bfloat16):
            model(layout(batch))
        found.append(bool(probe.measure()["examples_repeated"]))
    assert found == [False, True, False]


ONE, SEVERAL = torch.full((48,), 2), torch.arange(48) % 5
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cross-entropy": functional.cross_entropy,
    "smoothed": lambda logits, labels: functional.cross_entropy(logits, labels, label_smoothing=0.1),
    "summed and scaled": lambda logits, labels: 1024.0 * functional.cross_entropy(logits, labels, reduction="sum"),
    "half precision": lambda logits, labels: functional.cross_entropy(logits.bfloat16(), labels),
    "of tokens": lambda logits, labels: functional.cross_entropy(logits.view(8, 6, 5).movedim(2, 1), labels.view(8, 6)),
    "half of them masked": lambda logits, labels: functional.cross_entropy(
        logits, labels.where(torch.arange(48) % 6 < 3, -100)
    ),
    "probabilities": lambda logits, labels: functional.nll_loss(logits, labels),
}


def seen(loss: Callable[[Tensor], Tensor], outputs: Tensor) -> float | None:
    """What a probe says of the targets, where a model returns these."""
    model = nn.Identity()
    probe = TargetProbe(model)
    loss(model(outputs.requires_grad_()) * 1.0).backward()
    alike = probe.measure()["targets_alike"]
    assert not probe.closed
    return None if alike is None else float(alike)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_targets_of_one_class_are_known_from_the_gradient_of_the_outputs(loss: Callable[..., Tensor]) -> None:
    logits = torch.randn(48, 5, generator=torch.Generator().manual_seed(0))
    assert seen(lambda outputs: loss(outputs, ONE), logits.clone()) == 1.0
    assert seen(lambda outputs: loss(outputs, SEVERAL), logits.clone()) == 0.0


@pytest.mark.parametrize(
    ("loss", "shape"),
    [
        (lambda outputs: (outputs - torch.randn(48, 3)).square().mean(), (48, 3)),  # a regression
        (lambda outputs: functional.cross_entropy(outputs, ONE[:8]), (8, 5)),  # so few may be of one class by chance
        (lambda outputs: functional.cross_entropy(outputs, torch.full((48,), -100), reduction="sum"), (48, 5)),
        (lambda outputs: functional.cross_entropy(outputs * math.nan, ONE), (48, 5)),
    ],
)
def test_outputs_that_are_no_logits_and_few_targets_say_nothing(
    loss: Callable[[Tensor], Tensor], shape: tuple[int, ...]
) -> None:
    assert math.isnan(seen(loss, torch.randn(shape, generator=torch.Generator().manual_seed(0))) or 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("targets", [16, 17, 33, 65, 1000])
def test_with_many_classes_a_few_targets_are_enough(targets: int) -> None:
    logits = torch.randn(targets, 30_000, generator=torch.Generator().manual_seed(0))
    assert seen(lambda outputs: functional.cross_entropy(outputs, torch.full((targets,), 7)), logits) == 1.0


def test_a_tensor_that_a_model_returns_again_and_again_keeps_no_hook() -> None:
    class Returns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.logits = torch.randn(48, 5, requires_grad=True)

        def forward(self) -> Tensor:
            return self.logits

    model = Returns()
    probe = TargetProbe(model)
    for _ in range(3):
        functional.cross_entropy(model(), ONE).backward()
        assert probe.measure() == {"targets_alike": 1.0}
        assert not model.logits._backward_hooks
    model()
    probe.close()
    assert not model.logits._backward_hooks and not model._forward_hooks


@pytest.mark.parametrize(("loss", "told"), [(0.5, 1), (-0.5, 0)])
def test_a_loss_below_zero_is_no_cross_entropy_and_says_nothing_of_targets(loss: float, told: int) -> None:
    invariants = LoopInvariants()
    steps = [{"targets_alike": float(step >= 40), "training_loss": loss} for step in range(60)]
    assert sum(len(invariants.update(step)) for step in steps) == told


def test_a_model_that_returns_one_number_an_example_has_no_classes() -> None:
    assert seen(lambda outputs: outputs.square().mean(), torch.randn(24, 1)) is None
    assert seen(lambda outputs: outputs.square().mean(), torch.randn(24)) is None


def test_logits_that_a_compiled_model_makes_its_loss_of_say_nothing() -> None:
    class Answers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 5)

        def forward(self, data: Tensor) -> dict[str, Tensor]:
            logits = self.layer(data)
            return {"loss": functional.cross_entropy(logits, ONE), "logits": logits}

    model = torch.compile(Answers(), backend="aot_eager")
    probe = TargetProbe(model)
    model(torch.randn(48, 8))["loss"].backward()
    assert probe.measure() == {"targets_alike": None}
    assert not probe.closed


def test_logits_are_found_beside_the_loss_that_a_model_returns() -> None:
    class Answers(nn.Module):
        def forward(self, logits: Tensor) -> dict[str, Tensor]:
            return {"loss": functional.cross_entropy(logits, ONE), "logits": logits}

    model = Answers()
    probe = TargetProbe(model)
    model(torch.randn(48, 5, requires_grad=True))["loss"].backward()
    assert probe.measure() == {"targets_alike": 1.0}
    with torch.no_grad():
        model(torch.randn(48, 5))
    assert probe.measure() == {"targets_alike": None}
