"""A small network that learns from a large one, of which the temperature changes twice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import digits
from studies.zoo.stages import holding
from studies.zoo.training import Kind, Parts, register_kind

STAGES = {0: 6.0, 500: 2.0, 900: 1.0}
"""Step → temperature from then on."""


@dataclass(frozen=True)
class Taught:
    """Images, (B, 1, 8, 8), their labels, and the temperature of the lesson."""

    images: Tensor
    labels: Tensor
    temperature: float

    def part(self, index: int, parts: int) -> Self:
        """One of equal parts."""
        return type(self)(self.images.chunk(parts)[index], self.labels.chunk(parts)[index], self.temperature)


@cache
def teacher() -> nn.Module:
    """A network that was trained before, the same for all seeds; random numbers stay."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        for step in range(400):
            drawn = digits().draw(np.random.default_rng((0, step)), 64, held_out=False)
            optimizer.zero_grad()
            functional.cross_entropy(model(drawn.inputs), drawn.labels).backward()
            optimizer.step()
    return model.requires_grad_(False)


@register_kind("distillation_switch")
@dataclass(frozen=True, kw_only=True)
class DistillationSwitch(Kind):
    """Divergence from the teacher's answers, by the square of the temperature (Hinton et al. 2015).

    Held out is the cross entropy of the labels.
    """

    family = "vision"
    optimizer = "RMSprop"
    zoo = "zoo_2"
    why = "distillation whose temperature drops from 6 to 2 and to 1: the loss goes down in two steps by its definition"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=1e-3, warm_up_steps=20, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 10))
        return Parts(model, torch.optim.RMSprop(model.parameters(), alpha=0.95))

    def planned(self, step: int) -> str:
        return "a lower temperature" if step in STAGES else ""

    def batch(self, rng: np.random.Generator, step: int) -> Taught:
        drawn = digits().of_step(self, rng, step)
        return Taught(drawn.inputs, drawn.labels, holding(STAGES, step))

    def loss(self, model: nn.Module, batch: Taught) -> Tensor:
        wanted = (teacher()(batch.images) / batch.temperature).softmax(-1)
        said = (model(batch.images) / batch.temperature).log_softmax(-1)
        return batch.temperature**2 * functional.kl_div(said, wanted, reduction="batchmean")

    def held_out_loss(self, model: Any, batch: Taught) -> Tensor:
        return functional.cross_entropy(model(batch.images), batch.labels)
