"""Shapes known by points on their surface, in any order: PointNet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.training import Examples, Kind, Parts, register_kind

POINTS, SHAPES, NOISE = 48, 6, 0.15


def on_surface(shape: int, places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points, (B, POINTS, 3), of a shape by its number, from as many numbers uniform in (-1, 1)."""
    across, up, _ = np.moveaxis(places, -1, 0)
    turn, ring = np.pi * across, np.pi * up
    out, height = np.ones_like(up), up
    match shape:
        case 0:  # a box
            return places / np.abs(places).max(axis=-1, keepdims=True)
        case 1:  # an octahedron
            return 1.4 * places / np.abs(places).sum(axis=-1, keepdims=True)
        case 2:  # a ball
            out = np.sqrt(1.0 - up**2)
        case 3:  # a cone
            out = np.sqrt(np.abs(up))
            height = 1.0 - 2.0 * out
        case 4:  # a tyre
            out, height = 0.8 + 0.3 * np.cos(ring), 0.3 * np.sin(ring)
    return np.stack([out * np.cos(turn), out * np.sin(turn), height], axis=-1)  # as it stands: a tube


class PointNet(nn.Module):
    """The same layers for each point, the largest of each feature over the points, and layers on top."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 32, 48, 96)
        self.of_point = nn.Sequential(
            *(
                each
                for one, two in pairwise(widths)
                for each in (nn.Conv1d(one, two, 1), nn.BatchNorm1d(two), nn.ReLU())
            )
        )
        self.of_shape = nn.Sequential(nn.Linear(96, 48), nn.ReLU(), nn.Dropout(0.3), nn.Linear(48, SHAPES))

    def forward(self, points: Tensor) -> Tensor:
        """Logits, (B, SHAPES), of points, (B, POINTS, 3)."""
        logits: Tensor = self.of_shape(self.of_point(points.transpose(1, 2)).amax(dim=2))
        return logits


@register_kind("point_clouds")
@dataclass(frozen=True, kw_only=True)
class PointClouds(Kind):
    """Each shape is stretched, turned about the vertical and measured with noise.

    **Source:** Qi et al. 2017, PointNet: Deep Learning on Point Sets for 3D Classification and Segmentation.
    """

    family = "vision"
    optimizer = "Adam"
    why = "sets of points: a maximum over points through which few gradients pass; a rate in many small stairs"
    zoo = "zoo_4"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=2e-3, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = PointNet()
        return Parts(model, torch.optim.Adam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        rows = self.rows(step)
        labels = rng.integers(0, SHAPES, rows)
        places = rng.uniform(-1.0, 1.0, (rows, POINTS, 3))
        points = np.empty_like(places)
        for shape in range(SHAPES):
            points[labels == shape] = on_surface(shape, places[labels == shape])
        points *= rng.uniform(0.7, 1.3, (rows, 1, 3))
        turn = rng.uniform(0.0, 2.0 * np.pi, rows)
        right, deep = np.stack([np.cos(turn), np.sin(turn)]), np.stack([-np.sin(turn), np.cos(turn)])
        points[:, :, :2] = points[:, :, :2] @ np.stack([right, deep]).transpose(2, 1, 0)
        points += rng.normal(0.0, NOISE, points.shape)
        return Examples(torch.from_numpy(points).float(), torch.from_numpy(labels))

    def rate(self, step: int, steps: int) -> float:
        return float(0.7 ** (10 * step // steps))
