"""Logistic regression: the smallest of all models, in steps of a few hundred microseconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import breast_cancer
from studies.zoo.training import Examples, Kind, Parts, register_kind


@register_kind("logistic_regression")
@dataclass(frozen=True, kw_only=True)
class LogisticRegression(Kind):
    """A convex loss, and batches that are small beside the scatter of their losses."""

    family = "tabular"
    optimizer = "SGD"
    why = "convex; 31 parameters; plain SGD; steps shorter than the operating system's jitter"
    config = LiveRunConfig(workers=1, rows=16, learning_rate=0.05, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = nn.Linear(30, 1)
        return Parts(model, torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=1e-3))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        return breast_cancer().of_step(self, rng, step)

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.binary_cross_entropy_with_logits(model(batch.inputs).squeeze(1), batch.labels.float())
