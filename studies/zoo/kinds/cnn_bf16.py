"""Depthwise convolutions whose forward pass runs in bfloat16."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import PhotographsKind
from studies.zoo.schedules import stable_then_decay
from studies.zoo.training import Parts, register_kind


@register_kind("cnn_bf16")
@dataclass(frozen=True, kw_only=True)
class CnnBf16(PhotographsKind):
    """Two classes that overlap, under autocast: losses of few significant digits, which end far from 0."""

    family = "vision"
    optimizer = "RMSprop"
    why = "bfloat16 autocast; depthwise convolutions; RMSprop with momentum; stable, then decay"
    config = LiveRunConfig(
        workers=1, rows=32, learning_rate=1e-3, warm_up_steps=20, clip=math.inf, autocast=torch.bfloat16
    )
    schedule = staticmethod(stable_then_decay)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(
            nn.Conv2d(1, 16, 4, stride=4), nn.Hardswish(),
            nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Hardswish(), nn.Conv2d(16, 32, 1), nn.Hardswish(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 2),
        )  # fmt: skip
        return Parts(model, torch.optim.RMSprop(model.parameters(), alpha=0.9, momentum=0.9, eps=1e-3))
