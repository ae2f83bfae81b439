"""A network that grows: every 280 steps another block begins to learn what those before it leave."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.stages import begins_anew
from studies.zoo.teachers import taught
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind

FEATURES, BLOCKS, STAGE = 8, 5, 280
SHRINKAGE = 0.7
"""By what each block's answer is multiplied."""


def block() -> nn.Sequential:
    """A small network that begins by saying 0."""
    last = nn.Linear(10, 1)
    for each in last.parameters():
        nn.init.zeros_(each)
    return nn.Sequential(nn.Linear(FEATURES, 10), nn.Tanh(), last)


class Stages(nn.Module):
    """A sum of blocks, of which one is trained at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(block() for _ in range(BLOCKS))

    def forward(self, features: Tensor) -> Tensor:
        """Sum of what the blocks say, (B,)."""
        return SHRINKAGE * torch.stack([each(features) for each in self.blocks]).sum(0).squeeze(1)


@register_kind("stagewise_blocks")
@dataclass(frozen=True, kw_only=True)
class StagewiseBlocks(Kind):
    """Boosting with small networks: those before are frozen, and the error falls in stairs.

    **Source:** Friedman 2001, Greedy Function Approximation; Badirli et al. 2020 for networks in it.
    """

    family = "tabular"
    optimizer = "Adam"
    why = "every 280 steps one block is frozen and a new one starts from 0: other parameters have the gradients"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=5e-3, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = Stages()
        return Parts(model, torch.optim.Adam(model.parameters()))

    def planned(self, step: int) -> str:
        return "the next block" if begins_anew(step, STAGE) else ""

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        features = rng.standard_normal((self.rows(step), FEATURES))
        targets = taught(self.name, features, width=16) + (0.1 * rng.standard_normal(len(features)) if step else 0.0)
        return Examples(torch.from_numpy(features).float(), torch.from_numpy(targets).float())

    def before_step(self, run: KindRun, batch: Examples) -> None:
        model: Any = run.model
        for number, each in enumerate(model.blocks):
            each.requires_grad_(number == min((run.step - 1) // STAGE, BLOCKS - 1))

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.mse_loss(model(batch.inputs), batch.labels)
