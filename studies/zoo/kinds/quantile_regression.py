"""Quantiles of demand, whose scatter depends on the features."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.teachers import taught
from studies.zoo.training import Examples, Kind, Parts, register_kind

QUANTILES = (0.05, 0.5, 0.95)


@register_kind("quantile_regression")
@dataclass(frozen=True, kw_only=True)
class QuantileRegression(Kind):
    """Pinball loss (Koenker, Bassett 1978) of three quantiles: its gradients have no size, only a direction."""

    family = "tabular"
    optimizer = "RMSprop"
    why = "pinball loss of skewed targets; RMSprop at a constant rate"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=1e-3, warm_up_steps=0, clip=math.inf)
    held_out_rows = 1024

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, len(QUANTILES)))
        return Parts(model, torch.optim.RMSprop(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        features = rng.standard_normal((self.rows(step), 6))
        middle, spread = taught(self.name, features), np.exp(0.5 * taught(f"{self.name}/spread", features))
        demand = 5.0 * middle + spread * rng.gamma(2.0, 1.0, len(features))
        return Examples(torch.from_numpy(features).float(), torch.from_numpy(demand).float())

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        above = batch.labels.unsqueeze(1) - model(batch.inputs)
        return torch.maximum(above * torch.tensor(QUANTILES), above * (torch.tensor(QUANTILES) - 1.0)).mean()
