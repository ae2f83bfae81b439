"""Score matching: the slope of a density's logarithm, learnt from noise whose largest level falls in stairs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.stages import begins_anew
from studies.zoo.training import Batch, Kind, Parts, register_kind

LEAST, LARGEST, STAGE = 0.05, (1.0, 0.5, 0.25, 0.12), 350
"""Smallest level of noise; the largest one of each stage of so many steps."""


@dataclass(frozen=True)
class Noised(Batch):
    """Points, (B, 2), the noise to be added, (B, 2), and its level, (B, 1)."""

    points: Tensor
    noise: Tensor
    levels: Tensor


class Score(nn.Module):
    """From a point and the logarithm of the level to the slope, times the level."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2)
        )

    def forward(self, points: Tensor, levels: Tensor) -> Tensor:
        """Slopes, (B, 2)."""
        return self.layers(torch.cat([points, levels.log()], dim=1))


@register_kind("score_annealed")
@dataclass(frozen=True, kw_only=True)
class ScoreAnnealed(Kind):
    """Two spirals; with less noise the rest of it is harder to tell, so the loss climbs a stair at each stage.

    **Source:** Song, Ermon 2019, Generative Modeling by Estimating Gradients of the Data Distribution, equation 5.
    Held out is noise as in the last stage.
    """

    family = "generative"
    optimizer = "AdamW"
    why = "every 350 steps the noise becomes less and the loss climbs, by design"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=128, learning_rate=2e-3, warm_up_steps=50, clip=1.0)
    held_out_rows = 2048

    def make(self, seed: int) -> Parts:
        model = Score()
        return Parts(model, torch.optim.AdamW(model.parameters(), weight_decay=1e-3))

    def planned(self, step: int) -> str:
        return "less noise" if begins_anew(step, STAGE) else ""

    def batch(self, rng: np.random.Generator, step: int) -> Noised:
        rows = self.rows(step)
        angles = 3.0 * math.pi * rng.random(rows) ** 0.5
        turned = angles + math.pi * rng.integers(0, 2, rows)
        points = np.stack([np.cos(turned), np.sin(turned)], axis=1) * (0.15 * angles[:, None])
        largest = LARGEST[min((step - 1) // STAGE, len(LARGEST) - 1)] if step else LARGEST[-1]
        levels = np.exp(rng.uniform(math.log(LEAST), math.log(largest), (rows, 1)))
        drawn = (points, rng.standard_normal((rows, 2)), levels)
        return Noised(*(torch.from_numpy(each).float() for each in drawn))

    def loss(self, model: nn.Module, batch: Noised) -> Tensor:
        slopes = model(batch.points + batch.levels * batch.noise, batch.levels)
        return (slopes + batch.noise).square().sum(1).mean()
