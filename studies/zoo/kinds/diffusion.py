"""Diffusion: the noise in an image is predicted, at all levels of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import digits
from studies.zoo.training import Examples, Kind, Parts, register_kind


class Denoiser(nn.Module):
    """Two residual layers over pixels, each told the level of the noise."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(64, width), nn.Linear(width, 64)
        self.levels = nn.ModuleList(nn.Linear(16, width) for _ in range(2))
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.SiLU(), nn.Linear(width, width)) for _ in range(2)
        )

    def forward(self, images: Tensor, angles: Tensor) -> Tensor:
        """Predicted noise, (B, 64), of noisy images, (B, 64); the noise's share is the sine of the angle, (B, 1)."""
        waves = torch.cat([wave(angles * 2.0**k) for k in range(8) for wave in (torch.sin, torch.cos)], dim=1)
        hidden = self.into(images)
        for level, layer in zip(self.levels, self.layers, strict=True):
            hidden = hidden + layer(hidden + level(waves))
        return self.out(hidden)


@register_kind("diffusion")
@dataclass(frozen=True, kw_only=True)
class Diffusion(Kind):
    """Squared error of the noise, whose level is drawn for each image: noisy losses that hardly fall in the end.

    **Source:** Ho et al. 2020, Denoising Diffusion Probabilistic Models; levels on a circle as Nichol, Dhariwal 2021.
    """

    family = "generative"
    optimizer = "AdamW"
    why = "noise prediction: the loss depends on the levels that were drawn more than on progress"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=1e-3, warm_up_steps=100, clip=1.0)

    def make(self, seed: int) -> Parts:
        model = Denoiser()
        return Parts(model, torch.optim.AdamW(model.parameters(), weight_decay=0.01))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        images = digits().of_step(self, rng, step).inputs.flatten(1)
        return Examples(2.0 * images - 1.0, torch.from_numpy(rng.random((len(images), 1), dtype=np.float32)))

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        angles = 0.5 * torch.pi * batch.labels
        noise = torch.randn_like(batch.inputs)
        return functional.mse_loss(model(angles.cos() * batch.inputs + angles.sin() * noise, angles), noise)
