"""Regression on targets with heavy tails, by squared errors: single batches have huge losses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.teachers import taught
from studies.zoo.training import Examples, Kind, Parts, register_kind


@register_kind("heavy_tailed_regression")
@dataclass(frozen=True, kw_only=True)
class HeavyTailedRegression(Kind):
    """Errors of Student's t with 2.2 degrees of freedom, which have a variance, but no kurtosis.

    Held-out targets have no errors: what matters is the distance to the truth.
    """

    family = "tabular"
    optimizer = "Adam"
    why = "targets of Student's t: losses and gradients of single batches are ten or a hundred times the usual"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=5e-4, warm_up_steps=0, clip=1.0)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
        return Parts(model, torch.optim.Adam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        features = rng.standard_normal((self.rows(step), 8))
        targets = 3.0 * taught(self.name, features)
        if step:
            targets += 0.5 * rng.standard_t(2.2, len(targets))
        return Examples(torch.from_numpy(features).float(), torch.from_numpy(targets).float())

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.mse_loss(model(batch.inputs).squeeze(1), batch.labels)
