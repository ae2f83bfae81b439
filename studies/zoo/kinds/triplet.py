"""Triplets with a margin: in health many a loss is exactly 0."""

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
from studies.zoo.training import Batch, Kind, Parts, register_kind


@dataclass(frozen=True)
class Triplets(Batch):
    """Images, each (B, 1, 8, 8): one, another of its class, and one of another class."""

    anchors: Tensor
    alike: Tensor
    unlike: Tensor


@register_kind("triplet")
@dataclass(frozen=True, kw_only=True)
class Triplet(Kind):
    """Few triplets a batch, and most are soon far enough apart: no loss, no gradient.

    **Source:** Schroff et al. 2015, FaceNet. Held out is the soft margin of Hermans et al. 2017, which is never 0.
    """

    family = "contrastive"
    optimizer = "Adam"
    why = "hinge loss that is exactly 0, with gradients of 0, in a large part of the healthy steps"
    config = LiveRunConfig(workers=1, rows=8, learning_rate=1e-3, warm_up_steps=0, clip=math.inf)
    schedule = staticmethod(linear)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 16))
        return Parts(model, torch.optim.Adam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Triplets:
        rows = self.rows(step)
        drawn = digits().draw(rng, 16 * rows, held_out=step == 0)
        labels, anchors = drawn.labels.numpy(), np.arange(rows)
        same = labels[:rows, None] == labels[None, :]
        same[anchors, anchors] = False
        alike = np.where(same, rng.random(same.shape), -1.0).argmax(axis=1)
        other = labels[:rows, None] != labels[None, :]
        unlike = np.where(other, rng.random(other.shape), -1.0).argmax(axis=1)
        return Triplets(drawn.inputs[:rows], drawn.inputs[alike], drawn.inputs[unlike])

    def excess(self, model: nn.Module, batch: Triplets) -> Tensor:
        """Squared distance to the image of the same class less that to the other one, (B,), of unit vectors."""
        one, alike, unlike = functional.normalize(model(torch.cat([*vars(batch).values()]))).chunk(3)
        return (one - alike).square().sum(dim=1) - (one - unlike).square().sum(dim=1)

    def loss(self, model: nn.Module, batch: Triplets) -> Tensor:
        return functional.relu(self.excess(model, batch) + 0.2).mean()

    def held_out_loss(self, model: nn.Module, batch: Triplets) -> Tensor:
        return functional.softplus(self.excess(model, batch)).mean()

    def validation_loss(self, model: nn.Module, batch: Triplets) -> Tensor:
        return self.loss(model, batch)
