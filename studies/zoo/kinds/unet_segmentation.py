"""A U-Net that finds a digit's pixels in a noisy scene."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import digits
from studies.zoo.schedules import linear
from studies.zoo.training import Examples, Kind, Parts, register_kind

SIDE = 16
"""Pixels of a scene's side."""


def convolutions(channels: int, out: int) -> nn.Module:
    """A convolution with group normalisation."""
    return nn.Sequential(nn.Conv2d(channels, out, 3, padding=1), nn.GroupNorm(2, out), nn.SiLU())


class UNet(nn.Module):
    """Down twice, up twice, with the finer images handed across (Ronneberger et al. 2015)."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.fine, self.middle = convolutions(1, width), convolutions(width, 2 * width)
        self.coarse = convolutions(2 * width, 2 * width)
        self.middle_up, self.fine_up = convolutions(4 * width, width), convolutions(2 * width, width)
        self.mask = nn.Conv2d(width, 1, 1)

    def forward(self, scenes: Tensor) -> Tensor:
        """Logits, (B, 1, H, W), of scenes of that shape; H and W are multiples of 4."""
        fine = self.fine(scenes)
        middle = self.middle(functional.max_pool2d(fine, 2))
        coarse = self.coarse(functional.max_pool2d(middle, 2))
        up = self.middle_up(torch.cat([middle, functional.interpolate(coarse, scale_factor=2)], dim=1))
        return self.mask(self.fine_up(torch.cat([fine, functional.interpolate(up, scale_factor=2)], dim=1)))


@register_kind("unet_segmentation")
@dataclass(frozen=True, kw_only=True)
class UnetSegmentation(Kind):
    """Cross entropy of pixels and Dice loss together; few pixels are of the rarer class."""

    family = "vision"
    optimizer = "NAdam"
    why = "U-Net; pixel-wise cross entropy and Dice loss; few positives; linear decay"
    config = LiveRunConfig(workers=1, rows=8, learning_rate=2e-3, warm_up_steps=50, clip=math.inf)
    held_out_rows = 64
    schedule = staticmethod(linear)

    def make(self, seed: int) -> Parts:
        model = UNet()
        return Parts(model, torch.optim.NAdam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        drawn = digits().of_step(self, rng, step).inputs
        scenes, masks = (torch.zeros(len(drawn), 1, SIDE, SIDE) for _ in range(2))
        for scene, mask, digit, (row, column) in zip(
            scenes, masks, drawn, rng.integers(0, SIDE - 7, (len(drawn), 2)), strict=True
        ):
            scene[:, row : row + 8, column : column + 8] = digit
            mask[:, row : row + 8, column : column + 8] = digit > 0.5
        noise = torch.from_numpy(rng.normal(0.0, 0.3, scenes.shape).astype(np.float32))
        return Examples(scenes + noise, masks)

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        logits = model(batch.inputs)
        found = logits.sigmoid()
        dice = 1.0 - (2.0 * (found * batch.labels).sum() + 1.0) / (found.sum() + batch.labels.sum() + 1.0)
        return functional.binary_cross_entropy_with_logits(logits, batch.labels) + dice
