"""Two views of an image are to have the same features, and no feature is to repeat another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import digits, view
from studies.zoo.probes import probe_error
from studies.zoo.schedules import cosine
from studies.zoo.training import Examples, Kind, Parts, register_kind

PROJECTED, REPEATED = 64, 0.02
"""Features that are compared; what a correlation of two of them weighs."""


class Twins(nn.Module):
    """Features of images, and layers on top that are for the comparison alone."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(),
            nn.Linear(64, width), nn.ReLU(),
        )  # fmt: skip
        self.projected = nn.Sequential(
            nn.Linear(width, PROJECTED, bias=False), nn.BatchNorm1d(PROJECTED), nn.ReLU(),
            nn.Linear(PROJECTED, PROJECTED, bias=False), nn.BatchNorm1d(PROJECTED, affine=False),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """Projected features, (B, PROJECTED), each with mean 0 and spread 1 over the batch."""
        projected: Tensor = self.projected(self.features(images))
        return projected


@register_kind("barlow_twins")
@dataclass(frozen=True, kw_only=True)
class BarlowTwins(Kind):
    """The correlations of features between the views are to be 1 for the same feature and 0 for two.

    Held out is what the features below are worth.

    **Source:** Zbontar et al. 2021, Barlow Twins: Self-Supervised Learning via Redundancy Reduction.
    """

    family = "contrastive"
    optimizer = "SGD"
    why = "a loss of the batch's correlations, a sum of thousands of squares that falls from 60 to a few; no negatives"
    zoo = "zoo_4"
    config = LiveRunConfig(workers=1, rows=96, learning_rate=0.02, warm_up_steps=100, clip=math.inf)
    schedule = staticmethod(partial(cosine, last=0.01))

    def make(self, seed: int) -> Parts:
        model = Twins()
        return Parts(model, torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        drawn = digits().of_step(self, rng, step)
        return Examples(view(rng, drawn.inputs), view(rng, drawn.inputs)) if step else drawn

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        correlation = model(batch.inputs).T @ model(batch.labels) / len(batch.inputs)
        same = correlation.diagonal()
        repeated = correlation.square().sum() - same.square().sum()
        return (1.0 - same).square().sum() + REPEATED * repeated

    def held_out_loss(self, model: Any, batch: Examples) -> Tensor:
        return probe_error(model.features, batch)
