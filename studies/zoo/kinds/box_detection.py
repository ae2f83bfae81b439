"""Detection: which digit, and where; one loss for the class and one for the box."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import digits
from studies.zoo.schedules import drops
from studies.zoo.training import Examples, Kind, Parts, register_kind

SIDE, CELLS, CLASSES = 20, 5, 10
"""Pixels of a scene's side; cells of that side; classes."""
BOX_WEIGHT, FOCUS = 1.0, 2.0


@register_kind("box_detection")
@dataclass(frozen=True, kw_only=True)
class BoxDetection(Kind):
    """Focal loss over all cells and classes, and the box's distance in the cell in which its centre is.

    Labels are class, row and column of the digit's centre and its size, pixels, (B, 4).

    **Source:** Lin et al. 2017, Focal Loss for Dense Object Detection.
    """

    family = "vision"
    optimizer = "SGD"
    why = "two losses of unlike size; nearly all cells are background; Nesterov momentum, rate that drops twice"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=16, learning_rate=0.02, warm_up_steps=100, clip=10.0)
    held_out_rows = 64
    schedule = staticmethod(drops)

    def make(self, seed: int) -> Parts:
        head = nn.Conv2d(32, CLASSES + 3, 1)
        assert head.bias is not None
        nn.init.constant_(head.bias[:CLASSES], -4.0)  # nearly everything is background, from the first step on
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), head,
        )  # fmt: skip
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-4)
        return Parts(model, optimizer)

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        drawn = digits().of_step(self, rng, step)
        scenes, labels = 0.2 * torch.randn(len(drawn.labels), 1, SIDE, SIDE, generator=_generator(rng)), []
        for scene, digit, label in zip(scenes, drawn.inputs, drawn.labels.tolist(), strict=True):
            size = int(rng.integers(8, 13))
            row, column = rng.integers(0, SIDE - size + 1, 2).tolist()
            drawn_large = functional.interpolate(digit.unsqueeze(0), size=size, mode="bilinear")[0, 0]
            scene[0, row : row + size, column : column + size] += drawn_large
            labels.append((label, row + size / 2, column + size / 2, size))
        return Examples(scenes, torch.tensor(labels))

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        classes, boxes = model(batch.inputs).flatten(2).split((CLASSES, 3), dim=1)
        centres = batch.labels[:, 1:3] * (CELLS / SIDE)
        cells = centres.long().clamp(0, CELLS - 1)
        place, row = cells[:, 0] * CELLS + cells[:, 1], torch.arange(len(cells))
        right = torch.zeros_like(classes)
        right[row, batch.labels[:, 0].long(), place] = 1.0
        cross = functional.binary_cross_entropy_with_logits(classes, right, reduction="none")
        focal = ((1.0 - (-cross).exp()) ** FOCUS * cross).sum() / len(cells)
        target = torch.cat([centres - cells - 0.5, batch.labels[:, 3:] / 10.0 - 1.0], dim=1)
        return (
            focal + BOX_WEIGHT * functional.smooth_l1_loss(boxes[row, :, place], target, reduction="none").sum(1).mean()
        )


def _generator(rng: np.random.Generator) -> torch.Generator:
    return torch.Generator().manual_seed(int(rng.integers(2**31)))
