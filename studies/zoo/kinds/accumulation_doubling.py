"""Gradient accumulation that doubles three times: one micro-batch a step at first, eight at the end."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import photographs
from studies.zoo.stages import holding
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind

MICRO_BATCHES = {0: 1, 350: 2, 700: 4, 1050: 8}
"""Step → micro-batches of a step from then on."""


@register_kind("accumulation_doubling")
@dataclass(frozen=True, kw_only=True)
class AccumulationDoubling(Kind):
    """Steps become longer and gradients calmer in three jumps, while a micro-batch stays as it is: 8 patches, noisy."""

    family = "vision"
    optimizer = "Adam"
    zoo = "zoo_2"
    why = "accumulated micro-batches go from 1 to 8: step time doubles, the spread of the loss falls"
    config = LiveRunConfig(workers=8, rows=64, learning_rate=1e-3, warm_up_steps=20, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
        return Parts(model, torch.optim.Adam(model.parameters()))

    def planned(self, step: int) -> str:
        return "the batch doubles" if step in MICRO_BATCHES else ""

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        clean = photographs(8).of_step(self, rng, step).inputs
        noise = torch.from_numpy(rng.normal(0.0, 0.2, clean.shape).astype(np.float32))
        return Examples(clean + noise, clean)

    def before_step(self, run: KindRun, batch: Examples) -> None:
        run.active_workers = list(range(holding(MICRO_BATCHES, run.step)))

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.mse_loss(model(batch.inputs), batch.labels)
