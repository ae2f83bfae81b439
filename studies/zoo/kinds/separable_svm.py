"""A support vector machine on data that a plane divides: its loss becomes exactly 0, and so does the gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from rmetric.streams import stable_hash
from studies.zoo.data import Labelled
from studies.zoo.training import Examples, Kind, Parts, register_kind

FEATURES, MARGIN = 12, 0.5


@cache
def divided() -> Labelled:
    """Points on both sides of a plane, none nearer to it than the margin; labels -1 and 1."""
    rng = np.random.default_rng(stable_hash("separable"))
    points, normal = rng.normal(size=(4000, FEATURES)), rng.normal(size=FEATURES)
    side = points @ normal / np.linalg.norm(normal)
    clear = np.abs(side) > MARGIN
    return Labelled(torch.from_numpy(points[clear].astype(np.float32)), torch.from_numpy(np.sign(side[clear])).float())


@register_kind("separable_svm")
@dataclass(frozen=True, kw_only=True)
class SeparableSvm(Kind):
    """Hinge loss of a linear model. More and more steps have no example within the margin: they change nothing.

    Held out is a logistic loss, which is never 0.
    """

    family = "tabular"
    optimizer = "SGD"
    zoo = "zoo_2"
    why = "hinge loss on separable data: loss, gradient and update are exactly 0 in most steps at the end"
    config = LiveRunConfig(workers=1, rows=16, learning_rate=0.1, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = nn.Linear(FEATURES, 1)
        return Parts(model, torch.optim.SGD(model.parameters(), lr=0.1))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        return divided().of_step(self, rng, step)

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.relu(1.0 - batch.labels * model(batch.inputs).squeeze(1)).mean()

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.softplus(-batch.labels * model(batch.inputs).squeeze(1)).mean()
