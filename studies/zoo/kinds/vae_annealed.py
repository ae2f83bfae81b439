"""A variational autoencoder whose loss climbs while its second term is switched on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import digits
from studies.zoo.training import Kind, Parts, register_kind

ANNEALED = (300, 900)
"""Steps between which the weight of the second term goes from 0 to 1."""


@dataclass(frozen=True)
class Weighted:
    """Images, (B, 1, 8, 8), and the weight of the divergence."""

    images: Tensor
    weight: float

    def part(self, index: int, parts: int) -> Self:
        """One of equal parts."""
        return type(self)(self.images.chunk(parts)[index], self.weight)


class Vae(nn.Module):
    """Images to eight Gaussians, a draw of them to images."""

    def __init__(self, width: int = 64, latent: int = 8) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.GELU(), nn.Linear(width, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, width), nn.GELU(), nn.Linear(width, 64))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the pixels, (B, 64), and the divergence from a standard normal, nats, (B,)."""
        mean, log_variance = self.encoder(images).chunk(2, dim=1)
        drawn = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(dim=1)
        return self.decoder(drawn), divergence


@register_kind("vae_annealed")
@dataclass(frozen=True, kw_only=True)
class VaeAnnealed(Kind):
    """Reconstruction first, divergence from the prior later (Bowman et al. 2016): the loss rises by design."""

    family = "generative"
    optimizer = "Adam"
    why = "the weight of the divergence grows from step 300 to 900, and the loss with it; draws in the forward pass"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=2e-3, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = Vae()
        return Parts(model, torch.optim.Adam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Weighted:
        first, last = ANNEALED
        weight = min(max((step - first) / (last - first), 0.0), 1.0) if step else 1.0
        return Weighted(digits().of_step(self, rng, step).inputs, weight)

    def loss(self, model: nn.Module, batch: Weighted) -> Tensor:
        logits, divergence = model(batch.images)
        pixels = functional.binary_cross_entropy_with_logits(logits, batch.images.flatten(1), reduction="none")
        return (pixels.sum(dim=1) + batch.weight * divergence).mean()
