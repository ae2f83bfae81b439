"""Runs that are watched by policies, and what they leave behind."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRun
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.repair.policy import InterventionRule


def state_bits(run: LiveRun) -> list[Tensor]:
    """Everything that training leaves: weights, optimizer state, random state; as integers, so that NaN equals NaN."""
    state = [value for item in run.optimizer.state.values() for value in item.values() if isinstance(value, Tensor)]
    tensors = [*run.model.state_dict().values(), *state, torch.get_rng_state()]
    return [
        item.detach().clone().view(torch.uint8) if item.ndim else item.reshape(1).view(torch.uint8) for item in tensors
    ]


def same_to_the_last_bit(one: LiveRun, other: list[Tensor]) -> bool:
    """Whether a run is where another one was."""
    return equal(state_bits(one), other)


def hooks_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, int]:
    """How many hooks hang on every module, every parameter and the optimizer, by kind."""
    found = {}
    for owner, item in [*model.named_modules(), *model.named_parameters(), ("optimizer", optimizer)]:
        for name in dir(item):
            if "hooks" in name and name.startswith("_"):
                table = getattr(item, name)
                found[f"{type(item).__name__} {owner} {name}"] = len(table) if hasattr(table, "__len__") else 0
    return found


class Toy:
    """A small network with dropout and batch normalisation, trained by a loop of its own."""

    def __init__(self, *, dropout: float = 0.0, lr: float = 0.05, kind: type[torch.optim.Optimizer] = torch.optim.SGD):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(dropout), nn.Tanh(), nn.Linear(8, 3))
        self.optimizer = kind(self.model.parameters(), lr=lr)
        self.step = 0
        self.flip_in: dict[int, int] = {}
        """Step → how many of its computations are corrupted."""
        self.computations: dict[int, int] = {}
        self.watched: nn.Module = self.model
        """What the forward pass goes through."""

    def compute(self) -> Tensor:
        """Forward and backward passes of two micro-batches."""
        self.optimizer.zero_grad()
        losses = []
        for part in range(2):
            data = torch.randn(16, 6, generator=torch.Generator().manual_seed(10 * self.step + part))
            loss = (self.watched(data) - data[:, :3]).square().mean()
            (loss / 2).backward()
            losses.append(loss.detach())
        done = self.computations[self.step] = self.computations.get(self.step, 0) + 1
        if done <= self.flip_in.get(self.step, 0):
            self.corrupt(done)
        return torch.stack(losses).mean()

    def corrupt(self, computation: int) -> None:
        """Of the first weight's gradient, one number; another one in each computation."""
        self.model[0].weight.grad.view(-1)[computation] = 1e9 * computation

    def train(self, steps: int, monitor: TrainingMonitor | None = None, *, recompute: bool = True) -> list[bool]:
        """Train; returns whether each update was made."""
        proceeded = []
        self.model.train()
        for _ in range(steps):
            self.step += 1
            loss = self.compute()
            proceed = True
            if monitor is not None:
                proceed = monitor.step(loss, recompute=self.compute if recompute else None)
            if proceed:
                self.optimizer.step()
            proceeded.append(proceed)
        return proceeded

    def bits(self) -> list[Tensor]:
        """Weights, running statistics, optimizer state."""
        state = [
            value for item in self.optimizer.state.values() for value in item.values() if isinstance(value, Tensor)
        ]
        return [item.detach().clone() for item in [*self.model.state_dict().values(), *state]]

    def watch(self, **options: Any) -> TrainingMonitor:
        """A monitor on it that tells nobody."""
        return TrainingMonitor(self.model, self.optimizer, hardware=False, **{"announce": False, **options})


Draw = Callable[[], Tensor | float]
DRAWS: dict[str, Draw] = {
    "torch": lambda: torch.randn(16, 6),
    "numpy": lambda: float(np.random.beta(0.4, 0.4)),  # noqa: NPY002 - as users draw
    "python": random.random,
}


class Noisy(Toy):
    """Draws noise before its forward pass, as diffusion does and mixup; its loop may draw between steps, too."""

    def __init__(self, draw: Draw, *, between: bool = False) -> None:
        super().__init__(dropout=0.3)
        self.draw, self.between = draw, between
        self.watched = self.forward  # type: ignore[assignment]
        np.random.seed(0)  # noqa: NPY002 - as users draw
        random.seed(0)

    def compute(self) -> Tensor:
        self.noise = self.draw()
        return super().compute()

    def forward(self, data: Tensor) -> Tensor:
        return self.model(data + self.noise)

    def train(self, steps: int, monitor: TrainingMonitor | None = None, **options: Any) -> list[bool]:
        proceeded = []
        for _ in range(steps):
            if self.between:
                torch.rand(1)
            proceeded += super().train(1, monitor, **options)
        return proceeded


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    """Bit for bit, but for the signs of zeros and what is not a number."""
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def poisoned(toy: Toy, *steps: int, factor: float = 1e4) -> Toy:
    """Its gradients are too large in these steps, in every computation."""
    toy.corrupt = lambda computation: [p.grad.mul_(factor) for p in toy.model.parameters()]  # type: ignore
    toy.flip_in = dict.fromkeys(steps, 99)
    return toy


def at_once() -> InterventionRule:
    """When the scheduled alert comes, and once only."""
    return InterventionRule(on=("scheduled",), most=1)
