"""A convolutional network whose batches grow."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import DigitsKind
from studies.zoo.training import Parts, register_kind


@register_kind("cnn_batch_ramp")
@dataclass(frozen=True, kw_only=True)
class CnnBatchRamp(DigitsKind):
    """Batches of 8, 16, 32 and 64 under a constant rate: noise shrinks and step time grows by design.

    **Source:** Smith et al. 2018, Don't Decay the Learning Rate, Increase the Batch Size.
    """

    family = "vision"
    optimizer = "AdamW"
    why = "the batch doubles every 250 steps: noise shrinks, steps take longer"
    config = LiveRunConfig(workers=1, rows=8, learning_rate=1e-3, warm_up_steps=20, clip=1.0)
    noise = 0.3

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.GELU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 16, 3, padding=1), nn.GELU(), nn.Flatten(), nn.LayerNorm(256), nn.Linear(256, 10),
        )  # fmt: skip
        return Parts(model, torch.optim.AdamW(model.parameters(), weight_decay=0.05))

    def rows(self, step: int) -> int:
        return self.config.rows << min(step // 250, 3) if step else self.held_out_rows
