"""A convolutional network whose learning rate restarts twice."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import DigitsKind
from studies.zoo.schedules import warm_restarts
from studies.zoo.training import Parts, register_kind


@register_kind("cnn_restarts")
@dataclass(frozen=True, kw_only=True)
class CnnRestarts(DigitsKind):
    """Noisy images, three cosines: the loss jumps up where the rate does."""

    family = "vision"
    optimizer = "SGD"
    why = "warm restarts of the learning rate, where the loss rises by design; no normalisation"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=0.1, warm_up_steps=0, clip=math.inf)
    noise = 0.5
    schedule = staticmethod(warm_restarts)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(96, 10),
        )  # fmt: skip
        return Parts(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
