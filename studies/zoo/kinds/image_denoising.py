"""Regression from noisy photographs to clean ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import photographs
from studies.zoo.training import Examples, Kind, Parts, register_kind


@register_kind("image_denoising")
@dataclass(frozen=True, kw_only=True)
class ImageDenoising(Kind):
    """Predicts the noise, as Zhang et al. 2017 (DnCNN) do, with the absolute error; the rate is constant."""

    family = "vision"
    optimizer = "Adam"
    why = "image regression; absolute error; constant rate without warm-up"
    config = LiveRunConfig(workers=1, rows=16, learning_rate=2e-3, warm_up_steps=0, clip=math.inf)
    held_out_rows = 64

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU(),
            nn.Conv2d(12, 1, 3, padding=1),
        )  # fmt: skip
        return Parts(model, torch.optim.Adam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        clean = photographs().of_step(self, rng, step).inputs
        noise = torch.from_numpy(rng.normal(0.0, 0.2, clean.shape).astype(np.float32))
        return Examples(clean + noise, noise)

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.l1_loss(model(batch.inputs), batch.labels)
