"""Four regressions on one trunk, another one in every step; their losses differ tenfold from one to the next."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.schedules import cosine
from studies.zoo.teachers import taught
from studies.zoo.training import Kind, Parts, register_kind

UNITS, FEATURES = (0.3, 1.0, 3.0, 10.0), 8
"""Spread of the targets of each task."""


@dataclass(frozen=True)
class Tasked:
    """Features, (B, FEATURES), the targets of all tasks, (B, tasks), and the number of the task of this step."""

    inputs: Tensor
    targets: Tensor
    task: int

    def part(self, index: int, parts: int) -> Self:
        """One of equal parts."""
        return type(self)(self.inputs.chunk(parts)[index], self.targets.chunk(parts)[index], self.task)


@register_kind("multitask_round_robin")
@dataclass(frozen=True, kw_only=True)
class MultitaskRoundRobin(Kind):
    """The loss is periodic: 0.1, 1, 10, 100 times a number that falls. Held out: their sum, each by its unit."""

    family = "tabular"
    optimizer = "AdamW"
    zoo = "zoo_2"
    why = "a different task each step, losses from 1 to 1,000 in a period of four steps"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=3e-3, warm_up_steps=20, clip=math.inf)
    schedule = staticmethod(partial(cosine, last=0.05))

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
        return Parts(model, torch.optim.AdamW(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Tasked:
        features = rng.normal(size=(self.rows(step), FEATURES))
        clean = np.stack([taught(f"task {number}", features) for number in range(len(UNITS))], axis=1)
        targets = (clean + rng.normal(0.0, 0.1, clean.shape)) * UNITS
        inputs, labels = (torch.from_numpy(each.astype(np.float32)) for each in (features, targets))
        return Tasked(inputs, labels, step % len(UNITS))

    def loss(self, model: Any, batch: Tasked) -> Tensor:
        unit = UNITS[batch.task]
        return functional.mse_loss(unit * model(batch.inputs)[:, batch.task], batch.targets[:, batch.task])

    def held_out_loss(self, model: Any, batch: Tasked) -> Tensor:
        return (model(batch.inputs) - batch.targets / torch.tensor(UNITS)).square().mean(dim=0).sum()
