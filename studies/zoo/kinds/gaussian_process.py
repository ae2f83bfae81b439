"""Marginal likelihood of a Gaussian process: one loss of all data at once, in double precision, without any noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from rmetric.streams import stable_hash
from studies.zoo.teachers import taught
from studies.zoo.training import Examples, Kind, Parts, register_kind

POINTS, FEATURES, NOISE, LEAST_NOISE = 96, 3, 0.1, 1e-4


def points(rng: np.random.Generator, count: int) -> Examples:
    """Points of the plane and what the teacher says of them."""
    features = rng.normal(size=(count, FEATURES))
    return Examples(torch.from_numpy(features), torch.from_numpy(taught("gaussian process", features)))


@cache
def trained_on() -> Examples:
    """The data; the same in every run."""
    rng = np.random.default_rng(stable_hash("gaussian process"))
    drawn = points(rng, POINTS)
    return Examples(drawn.inputs, drawn.labels + torch.from_numpy(rng.normal(0.0, NOISE, POINTS)))


class Process(nn.Module):
    """Logarithms of the length of each feature, of the size and of the noise."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths = nn.Parameter(0.5 * torch.randn(FEATURES, dtype=torch.float64))
        self.size = nn.Parameter(torch.zeros((), dtype=torch.float64))
        self.noise = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def covariance(self, one: Tensor, other: Tensor) -> Tensor:
        """Of the values at some points, (points, other points)."""
        scale = self.lengths.exp()
        apart = (one / scale).unsqueeze(1) - (other / scale).unsqueeze(0)
        return (2.0 * self.size).exp() * (-0.5 * apart.square().sum(dim=2)).exp()

    def factor(self, inputs: Tensor) -> Tensor:
        """Cholesky factor of the covariance of what is observed."""
        noise = (2.0 * self.noise).exp() + LEAST_NOISE
        return torch.linalg.cholesky(self.covariance(inputs, inputs) + noise * torch.eye(len(inputs)))


@register_kind("gaussian_process")
@dataclass(frozen=True, kw_only=True)
class GaussianProcess(Kind):
    """Five hyper-parameters; the loss is negative at the end, and differs from step to step in the tenth digit.

    Held out is the error of the mean prediction, with 1 % of the targets' spread added.

    **Source:** Rasmussen, Williams 2006, section 5.4.1.
    """

    family = "tabular"
    optimizer = "Adam"
    zoo = "zoo_2"
    why = "full batch, double precision, five parameters: a loss without noise that turns negative and stands still"
    config = LiveRunConfig(workers=1, rows=POINTS, learning_rate=0.02, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = Process()
        return Parts(model, torch.optim.Adam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        return trained_on() if step else points(rng, self.rows(step))

    def loss(self, model: Any, batch: Examples) -> Tensor:
        factor = model.factor(batch.inputs)
        white = torch.linalg.solve_triangular(factor, batch.labels.unsqueeze(1), upper=False)
        return 0.5 * white.square().mean() + factor.diagonal().log().mean() + 0.5 * math.log(2.0 * math.pi)

    def held_out_loss(self, model: Any, batch: Examples) -> Tensor:
        known = trained_on()
        weights = torch.cholesky_solve(known.labels.unsqueeze(1), model.factor(known.inputs))
        said = (model.covariance(batch.inputs, known.inputs) @ weights).squeeze(1)
        return 0.01 + (said - batch.labels).square().mean().sqrt()
