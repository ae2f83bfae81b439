"""A small convolutional network on images, SGD with momentum and a cosine schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import DigitsKind
from studies.zoo.schedules import cosine
from studies.zoo.training import Parts, register_kind


@register_kind("cnn_sgd")
@dataclass(frozen=True, kw_only=True)
class CnnSgd(DigitsKind):
    """Batch normalisation, momentum, cosine: how image classifiers are trained."""

    family = "vision"
    optimizer = "SGD"
    why = "batch normalisation, SGD with momentum, cosine"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=0.1, warm_up_steps=50, clip=math.inf)
    schedule = staticmethod(cosine)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(16, 10),
        )  # fmt: skip
        return Parts(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4))
