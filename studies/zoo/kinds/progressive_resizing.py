"""Photographs that are shown small first, then larger, then in full."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import photographs
from studies.zoo.stages import holding
from studies.zoo.training import Examples, Kind, Parts, register_kind

SIZES = {0: 6, 450: 12, 900: 24}
"""Step → side of the images from then on, pixels."""


@register_kind("progressive_resizing")
@dataclass(frozen=True, kw_only=True)
class ProgressiveResizing(Kind):
    """One network for all sizes; what it has learnt of small images fits large ones badly at first."""

    family = "vision"
    optimizer = "RAdam"
    zoo = "zoo_2"
    why = "images of 6, 12, 24 pixels a side: step time and gradient norm jump at each change"
    config = LiveRunConfig(workers=1, rows=24, learning_rate=2e-3, warm_up_steps=20)
    held_out_rows = 128

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 12, 3, stride=2, padding=1), nn.GELU(),
            nn.Conv2d(12, 12, 3, padding=1), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(48, 2),
        )  # fmt: skip
        return Parts(model, torch.optim.RAdam(model.parameters()))

    def planned(self, step: int) -> str:
        return "larger images" if step in SIZES else ""

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        drawn = photographs(24).of_step(self, rng, step)
        side = holding(SIZES, step) if step else max(SIZES.values())
        return Examples(functional.adaptive_avg_pool2d(drawn.inputs, side), drawn.labels)
