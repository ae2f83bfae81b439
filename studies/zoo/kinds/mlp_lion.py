"""A network with much dropout on a table, trained with Lion."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.optimizers import Lion
from studies.zoo.schedules import linear
from studies.zoo.teachers import taught
from studies.zoo.training import Examples, Kind, Parts, register_kind


@register_kind("mlp_lion")
@dataclass(frozen=True, kw_only=True)
class MlpLion(Kind):
    """Four classes: the quarters of a smooth function. All updates have the same size, whatever the gradients."""

    family = "tabular"
    optimizer = "Lion"
    why = "updates by sign; dropout, so that the training loss is above the held-out one"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=1e-3, warm_up_steps=50, clip=math.inf)
    held_out_rows = 512
    schedule = staticmethod(linear)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(
            nn.Linear(10, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2),
            nn.Linear(64, 4),
        )  # fmt: skip
        return Parts(model, Lion(model.parameters(), weight_decay=0.1))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        features = rng.standard_normal((self.rows(step), 10))
        classes = np.digitize(taught(self.name, features), (-0.6, 0.0, 0.6))
        return Examples(torch.from_numpy(features).float(), torch.from_numpy(classes))
