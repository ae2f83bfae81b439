"""A convolutional network whose batch normalisation stops to follow the batches midway."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import PhotographsKind
from studies.zoo.schedules import cosine
from studies.zoo.training import Examples, KindRun, Parts, register_kind

FROZEN_FROM = 700


@register_kind("batchnorm_frozen")
@dataclass(frozen=True, kw_only=True)
class BatchnormFrozen(PhotographsKind):
    """Small batches; from step 700 on the moving averages normalise in training as well, as detectors are trained."""

    family = "vision"
    optimizer = "SGD"
    zoo = "zoo_2"
    why = "batch normalisation goes over to its moving averages at step 700; batches of 12"
    config = LiveRunConfig(workers=1, rows=12, learning_rate=0.02, warm_up_steps=50, clip=math.inf)
    schedule = staticmethod(partial(cosine, last=0.02))

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16),
            nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2),
        )  # fmt: skip
        return Parts(model, torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4))

    def planned(self, step: int) -> str:
        return "moving averages normalise" if step == FROZEN_FROM else ""

    def before_step(self, run: KindRun, batch: Examples) -> None:
        if run.step >= FROZEN_FROM:
            for layer in run.model.modules():
                if isinstance(layer, nn.BatchNorm2d):
                    layer.eval()
