"""An autoencoder with a codebook, of which the codes that nobody uses begin anew."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import DigitsKind
from studies.zoo.training import Examples, KindRun, Parts, register_kind

CODES, WIDTH, PLACES = 48, 8, 4
REVIVED_EVERY, DEAD = 150, 0.1
"""Steps between two looks at the codes; uses a step below which a code is dead."""


class VqVae(nn.Module):
    """Each quarter of an image becomes a code; of the codes the image is made again."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 24, 4, stride=2, padding=1), nn.ReLU(), nn.Conv2d(24, WIDTH, 4, stride=2, padding=1)
        )
        self.codes = nn.Parameter(torch.randn(CODES, WIDTH))
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(WIDTH, 24, 4, stride=2, padding=1), nn.ReLU(), nn.ConvTranspose2d(24, 1, 4, 2, 1)
        )
        self.uses: Tensor
        self.register_buffer("uses", torch.ones(CODES))
        """Moving average of how often a code is used a step."""

    def vectors(self, images: Tensor) -> Tensor:
        """What the encoder says, (B, places, width)."""
        vectors: Tensor = self.encoder(images).flatten(2).transpose(1, 2)
        return vectors

    def nearest(self, vectors: Tensor) -> Tensor:
        """Numbers of the nearest codes, (B, places)."""
        return torch.cdist(vectors.flatten(0, 1), self.codes).argmin(dim=1).view(vectors.shape[:2])

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images made of codes, and the distance of the codes from what the encoder says."""
        vectors = self.vectors(images)
        codes = self.codes[self.nearest(vectors)]
        apart = functional.mse_loss(codes, vectors.detach()) + 0.25 * functional.mse_loss(vectors, codes.detach())
        passed = vectors + (codes - vectors).detach()  # straight through
        side = math.isqrt(PLACES)
        return self.decoder(passed.transpose(1, 2).unflatten(2, (side, side))), apart


@register_kind("vq_vae")
@dataclass(frozen=True, kw_only=True)
class VqVaeDigits(DigitsKind):
    """A discrete bottleneck (van den Oord et al. 2017); dead codes move to where the encoder is, every 150 steps."""

    family = "generative"
    optimizer = "Adam"
    zoo = "zoo_2"
    why = "a codebook whose dead codes are set anew every 150 steps: weights jump by hand; straight-through gradients"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=2e-3, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = VqVae()
        return Parts(model, torch.optim.Adam(model.parameters()))

    @torch.no_grad()
    def before_step(self, run: KindRun, batch: Examples) -> None:
        model: Any = run.model
        vectors = model.vectors(batch.inputs)
        used = torch.bincount(model.nearest(vectors).flatten(), minlength=CODES)
        model.uses.lerp_(used.float(), 0.05)
        if run.step % REVIVED_EVERY == 0:
            dead = (model.uses < DEAD).nonzero().squeeze(1)
            donors = run.rng("donors").choice(vectors.shape[0] * PLACES, size=len(dead))
            model.codes[dead] = vectors.flatten(0, 1)[torch.from_numpy(donors)]
            model.uses[dead] = 1.0

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        made, apart = model(batch.inputs)
        return functional.mse_loss(made, batch.inputs) + apart

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.mse_loss(model(batch.inputs)[0], batch.inputs)
