"""A convolutional network in four processes, whose batch statistics each process takes from eight images."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import DigitsKind
from studies.zoo.training import Parts, register_kind


@register_kind("ddp_cnn")
@dataclass(frozen=True, kw_only=True)
class DdpCnn(DigitsKind):
    """Four workers with few images each: their gradients differ much, and the loss of the first one is noisy."""

    family = "vision"
    optimizer = "Adam"
    why = "four processes of DDP with eight images each, batch normalisation"
    processes = 4
    config = LiveRunConfig(workers=1, rows=32, learning_rate=2e-3, warm_up_steps=50, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(2),
            nn.Flatten(), nn.Dropout(0.3), nn.Linear(8 * 16, 10),
        )  # fmt: skip
        return Parts(model, torch.optim.Adam(model.parameters()))
