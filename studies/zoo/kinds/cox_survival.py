"""Survival analysis: who dies first among those who are left, with many of whom nobody knows the end."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.teachers import taught
from studies.zoo.training import Examples, Kind, Parts, register_kind

FEATURES = 8


@register_kind("cox_survival")
@dataclass(frozen=True, kw_only=True)
class CoxSurvival(Kind):
    """Negative partial log-likelihood of Cox 1972: an example's loss depends on all others of its batch.

    Labels are the time of observation and whether it ended by death, (B, 2).
    """

    family = "tabular"
    optimizer = "AMSGrad"
    why = "a loss over the order of a batch; half of the examples censored; the loss falls by little"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=2e-3, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(nn.Linear(FEATURES, 32), nn.SELU(), nn.Dropout(0.1), nn.Linear(32, 1, bias=False))
        return Parts(model, torch.optim.Adam(model.parameters(), weight_decay=1e-4, amsgrad=True))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        rows = self.rows(step)
        features = rng.standard_normal((rows, FEATURES))
        death = rng.weibull(1.5, rows) * np.exp(-taught(self.name, features))
        left = rng.uniform(0.0, 2.0, rows)
        labels = np.stack([np.minimum(death, left), death <= left], axis=1)
        return Examples(torch.from_numpy(features).float(), torch.from_numpy(labels).float())

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        latest_first = batch.labels[:, 0].argsort(descending=True)
        risk = model(batch.inputs).squeeze(1)[latest_first]
        died = batch.labels[latest_first, 1]
        return (died * (risk.logcumsumexp(0) - risk)).sum() / died.sum().clamp(min=1.0)
