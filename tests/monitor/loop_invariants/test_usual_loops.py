"""What loops do by right: never told of."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from rmetric.monitor.repair.policy import Policy
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


class Padded(Loop):
    """Sentences become so long from the onset on that none is padded, and of the same length now and then."""

    def __init__(self, **options: Any) -> None:
        super().__init__(model=TakesMore(nn.Linear(8, 3)), **options)

    def passes(self) -> Tensor:
        drawn = torch.Generator().manual_seed(self.step)
        lengths = torch.full((32,), 20) if self.broken else torch.randint(3, 20, (32,), generator=drawn)
        mask = torch.arange(20) < lengths[:, None]
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        causal = torch.full((min(self.step, ONSET),) * 2, -math.inf).triu(1)
        loss: Tensor = self.model(self.batch(), mask, positions, causal).square().mean()
        loss.backward()
        return loss


class Conditioned(Padded):
    """From the onset on the four examples of a batch are of the same classes twice by chance."""

    def passes(self) -> Tensor:
        classes = torch.tensor([0, 1, 1, 0]) if self.step in (ONSET, ONSET + 1, ONSET + 2) else torch.randint(9, (4,))
        loss: Tensor = self.model(self.batch()[:4], classes).square().mean()
        loss.backward()
        return loss


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
        Padded, Conditioned, OneClassNowAndThen, Frozen, PrunedByTorch, TrainedInBlocks, Faded,
        SharedByExperts, Accumulated, Noisy, Penalised, GoesUpNowAndThen,
    ],
    ids=lambda kind: kind.__name__,
)  # fmt: skip
def test_what_a_loop_does_by_right_is_not_told_of(usual: type[Loop], tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    usual(log=log).run(2 * STEPS)
    assert told(log) == []


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
