"""A training loop of which a test breaks a line, and what its monitor tells of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.monitor import Alert, TrainingMonitor
from rmetric.monitor.changes import SettingChange
from rmetric.monitor.loop_invariants import LoopInvariants
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


class TakesMore(nn.Sequential):
    """A model that is called with more than its inputs."""

    def forward(self, *given: Tensor) -> Tensor:
        outputs: Tensor = super().forward(given[0])
        return outputs


class WeightsNudged(Loop):
    def between(self) -> None:
        if self.broken:
            self.nudge()


class Numbered(Loop):
    """Its batches have numbers."""

    def number(self) -> int:
        return self.step

    def batch(self) -> Tensor:
        step, self.step = self.step, self.number()
        batch = super().batch()
        self.step = step
        return batch


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


class Classified(Loop):
    """Each example has one of three classes."""

    def labels(self) -> Tensor:
        return torch.randint(3, (32,), generator=torch.Generator().manual_seed(self.step))

    def passes(self) -> Tensor:
        loss = functional.cross_entropy(self.model(self.batch()), self.labels())
        loss.backward()
        return loss


class Normalised(Loop):
    """A model with batch norm."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            model=nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)), **options
        )


class Clips(Loop):
    """Gradients are clipped to a norm that changes at the onset; infinity: not at all."""

    bounds = (1e-3, 1e-3)

    def clip(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.bounds[self.broken])


class TurnedAfterTheCall(Loop):
    """Updates go up the loss."""

    def clip(self) -> None:
        if self.broken:
            for parameter in self.model.parameters():
                parameter.grad.neg_()


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


def told(log: Path) -> list[tuple[int, str]]:
    """Changes that are alerts; one with a message of its own, as where layers are frozen, is a note."""
    lines = [line for line in lines_of(log.read_bytes()) if line["event"] == "SETTING_CHANGED"]
    return [(line["step"], line["setting"]) for line in lines if "message" not in line]


def told_of(measured: Iterable[dict[str, float]]) -> list[SettingChange]:
    invariants = LoopInvariants()
    return [change for values in measured for change in invariants.update(values)]
