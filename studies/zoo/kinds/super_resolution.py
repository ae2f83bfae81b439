"""Super-resolution: sharp images from coarse ones, by pixels first, and by what a network sees later."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from rmetric.streams import stable_hash
from studies.zoo.data import photographs
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind

PERCEIVED_FROM, PERCEIVED_WEIGHT = 700, 10.0
"""First step with the second term."""


class Upscaler(nn.Module):
    """What bilinear interpolation lacks, by convolutions on the coarse image; the weight of the second term."""

    weight: Tensor

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.PReLU(), nn.Conv2d(width, width, 3, padding=1), nn.PReLU(),
            nn.Conv2d(width, 4, 3, padding=1), nn.PixelShuffle(2),
        )  # fmt: skip
        self.register_buffer("weight", torch.tensor(0.0))

    def forward(self, images: Tensor) -> Tensor:
        """Images of twice the size, of images (B, 1, H, W)."""
        return functional.interpolate(images, scale_factor=2, mode="bilinear") + self.layers(images)


@cache
def perception() -> nn.Module:
    """A fixed network of two convolutions, the same for all, in place of a pretrained one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stable_hash("perception") % 2**31)
        layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, bias=False), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, bias=False), nn.ReLU()
        )
    return layers.requires_grad_(False)


@register_kind("super_resolution")
@dataclass(frozen=True, kw_only=True)
class SuperResolution(Kind):
    """Absolute error of pixels; from step 700 that of features too, so the loss is half as large again.

    Held out is the error of the pixels.

    **Source:** Johnson et al. 2016, Perceptual Losses; Ledig et al. 2017, which begins with pixels as well.
    """

    family = "vision"
    optimizer = "Adam"
    why = "a second term of the loss is switched on at step 700: loss and gradient leap"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=16, learning_rate=1e-3, warm_up_steps=0, clip=math.inf)
    held_out_rows = 128

    def make(self, seed: int) -> Parts:
        model = Upscaler()
        return Parts(model, torch.optim.Adam(model.parameters(), betas=(0.9, 0.99)))

    def planned(self, step: int) -> str:
        return "the second term of the loss" if step == PERCEIVED_FROM else ""

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        sharp = photographs().of_step(self, rng, step).inputs
        return Examples(functional.avg_pool2d(sharp, 2), sharp)

    def before_step(self, run: KindRun, batch: Examples) -> None:
        model: Any = run.model
        model.weight.fill_(PERCEIVED_WEIGHT if run.step >= PERCEIVED_FROM else 0.0)

    def loss(self, model: Any, batch: Examples) -> Tensor:
        made, see = model(batch.inputs), perception()
        return functional.l1_loss(made, batch.labels) + model.weight * functional.l1_loss(see(made), see(batch.labels))

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.l1_loss(model(batch.inputs), batch.labels)
