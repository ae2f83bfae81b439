"""A masked autoencoder: three quarters of an image are painted from the rest; LAMB."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import photographs
from studies.zoo.optimizers import Lamb
from studies.zoo.schedules import cosine
from studies.zoo.training import Examples, Kind, Parts, register_kind
from studies.zoo.transformer import Block, Size

PATCH, SEEN = 4, 4
"""Pixels of a patch's side; patches that the encoder sees, of 16."""


class MaskedAutoencoder(nn.Module):
    """An encoder of the patches that are seen, and a decoder with a vector in place of those that are not."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        size = Size(width=width, causal=False)
        self.into, self.out = nn.Linear(PATCH**2, width), nn.Linear(width, PATCH**2)
        self.places, self.missing = nn.Parameter(0.1 * torch.randn(16, width)), nn.Parameter(torch.zeros(width))
        self.encoder, self.between, self.decoder = Block(size), nn.LayerNorm(width), Block(size)

    def forward(self, patches: Tensor, order: Tensor) -> Tensor:
        """Painted patches, (B, 16, pixels), of the same; those that come first in the order, (B, 16), are seen."""
        seen = order[:, :SEEN, None]
        tokens = (self.into(patches) + self.places).gather(1, seen.expand(-1, -1, self.places.shape[1]))
        tokens = self.between(self.encoder(tokens))
        full = self.missing.expand(len(patches), 16, -1).scatter(1, seen.expand_as(tokens), tokens)
        painted: Tensor = self.out(self.decoder(full + self.places))
        return painted


@register_kind("masked_autoencoder")
@dataclass(frozen=True, kw_only=True)
class MaskedAutoencoderKind(Kind):
    """Squared error of the unseen patches, pixels from -1 to 1: part of it cannot be known.

    **Source:** He et al. 2022, Masked Autoencoders Are Scalable Vision Learners. Labels are the order of the patches.
    """

    family = "vision"
    optimizer = "LAMB"
    why = "paints masked patches; LAMB: each tensor moves by a share of its own length; cosine"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=1e-2, warm_up_steps=100, clip=math.inf)
    schedule = staticmethod(cosine)

    def make(self, seed: int) -> Parts:
        model = MaskedAutoencoder()
        return Parts(model, Lamb(model.parameters(), weight_decay=0.01))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        images = photographs().of_step(self, rng, step).inputs
        order = rng.random((len(images), 16)).argsort(axis=1)
        return Examples(images, torch.from_numpy(order))

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        patches = nn.functional.pixel_unshuffle(2.0 * batch.inputs - 1.0, PATCH).flatten(2).transpose(1, 2)
        error = (model(patches, batch.labels) - patches).square().mean(2)
        return error.gather(1, batch.labels[:, SEEN:]).mean()
