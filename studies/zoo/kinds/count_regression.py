"""Counts by Poisson regression: losses far below 0, as libraries leave out the constant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.teachers import taught
from studies.zoo.training import Examples, Kind, Parts, register_kind

FEATURES = 6


class Rates(nn.Module):
    """A network's rate times the exposure."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 32), nn.Softplus(), nn.Linear(32, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logarithm of the expected count, (B,), of features and, last, the logarithm of the exposure."""
        return self.layers(inputs[:, :FEATURES]).squeeze(1) + inputs[:, FEATURES]


@register_kind("count_regression")
@dataclass(frozen=True, kw_only=True)
class CountRegression(Kind):
    """Counts of some tens with more variance than Poisson's; exposures that differ a hundredfold.

    Held out is the deviance, which is positive.
    """

    family = "tabular"
    optimizer = "Adamax"
    why = "negative log-likelihood without its constant: large and negative, led by the few large counts"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=96, learning_rate=5e-3, warm_up_steps=0, clip=10.0)

    def make(self, seed: int) -> Parts:
        model = Rates()
        return Parts(model, torch.optim.Adamax(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        rows = self.rows(step)
        features, exposure = rng.standard_normal((rows, FEATURES)), rng.uniform(-2.0, 2.0, (rows, 1))
        expected = np.exp(2.5 + 0.7 * taught(self.name, features) + exposure[:, 0])
        counts = rng.poisson(expected * rng.gamma(10.0, 0.1, rows))
        inputs = np.concatenate([features, exposure], axis=1)
        return Examples(torch.from_numpy(inputs).float(), torch.from_numpy(counts).float())

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.poisson_nll_loss(model(batch.inputs), batch.labels, log_input=True)

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        best = torch.special.xlogy(batch.labels, batch.labels) - batch.labels
        return 2.0 * (self.loss(model, batch) + best.mean())

    def validation_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return self.loss(model, batch)
