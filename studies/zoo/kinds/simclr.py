"""Contrastive learning: two views of an image are to be each other's nearest in the batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import digits, view
from studies.zoo.schedules import cosine
from studies.zoo.training import Examples, Kind, Parts, register_kind


@register_kind("simclr")
@dataclass(frozen=True, kw_only=True)
class SimClr(Kind):
    """Cross entropy over the other images of the batch, at a temperature of 0.2.

    **Source:** Chen et al. 2020, A Simple Framework for Contrastive Learning of Visual Representations.
    """

    family = "contrastive"
    optimizer = "SGD"
    why = "InfoNCE: the loss begins at the logarithm of the batch's size, and examples are each other's classes"
    config = LiveRunConfig(workers=1, rows=48, learning_rate=0.1, warm_up_steps=100, clip=math.inf)
    held_out_rows = 128
    schedule = staticmethod(cosine)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(
            nn.Conv2d(1, 12, 3, stride=2, padding=1), nn.BatchNorm2d(12), nn.ReLU(),
            nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(96, 64), nn.ReLU(),
            nn.Linear(64, 32),
        )  # fmt: skip
        return Parts(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        images = digits().of_step(self, rng, step).inputs
        return Examples(view(rng, images), view(rng, images))

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        first, second = functional.normalize(model(torch.cat([batch.inputs, batch.labels]))).chunk(2)
        alike = first @ second.T / 0.2
        partner = torch.arange(len(alike))
        return 0.5 * (functional.cross_entropy(alike, partner) + functional.cross_entropy(alike.T, partner))
