"""A residual network with smoothed labels, Nesterov momentum and a rate that drops twice."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import digits
from studies.zoo.schedules import drops
from studies.zoo.training import Examples, Kind, Parts, register_kind


class Block(nn.Module):
    """Two convolutions with batch normalisation, and a way round them."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out),
        )  # fmt: skip
        self.way_round = nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        """Images, (B, out, H / stride, W / stride)."""
        return functional.relu(self.body(images) + self.way_round(images))


@register_kind("resnet_label_smoothing")
@dataclass(frozen=True, kw_only=True)
class ResnetLabelSmoothing(Kind):
    """Shifted images and smoothed labels: the loss ends at a level far from 0, and falls where the rate drops."""

    family = "vision"
    optimizer = "SGD"
    why = "residual network; label smoothing; Nesterov momentum; the rate drops twice by 10"
    config = LiveRunConfig(workers=1, rows=24, learning_rate=0.05, warm_up_steps=0, clip=math.inf)
    schedule = staticmethod(drops)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            Block(8, 12, 2), Block(12, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
        )  # fmt: skip
        return Parts(
            model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
        )

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        drawn = digits().of_step(self, rng, step)
        if step == 0:
            return drawn
        down, right = (int(shift) for shift in rng.integers(-1, 2, 2))
        return Examples(drawn.inputs.roll((down, right), (2, 3)), drawn.labels)

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.cross_entropy(model(batch.inputs), batch.labels, label_smoothing=0.1)
