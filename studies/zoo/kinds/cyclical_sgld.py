"""Samples from the posterior of a small network: a rate that restarts seven times, noise on the weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.schedules import cosine
from studies.zoo.teachers import taught
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind

CYCLE, EXPLORED, TEMPERATURE, FEATURES = 200, 0.6, 1e-5, 10
"""Steps a cycle; the share of it after which noise is added; of the posterior over the number of examples."""


@register_kind("cyclical_sgld")
@dataclass(frozen=True, kw_only=True)
class CyclicalSgld(Kind):
    """Every 200 steps the rate is high again and drives the weights out of their mode.

    **Source:** Zhang et al. 2020, Cyclical Stochastic Gradient MCMC, algorithm 1.
    """

    family = "tabular"
    optimizer = "SGLD"
    zoo = "zoo_2"
    why = "seven cycles of a rate up to 0.4 and down to nothing, with Langevin noise in the last part of each"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=0.4, warm_up_steps=0, clip=2.0)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(nn.Linear(FEATURES, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))
        return Parts(model, torch.optim.SGD(model.parameters(), lr=0.4))

    def planned(self, step: int) -> str:
        return "" if step % CYCLE else "the next cycle"

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        features = rng.normal(size=(self.rows(step), FEATURES))
        labels = taught("cyclical sgld", features) + rng.normal(0.0, 0.1, len(features))
        return Examples(torch.from_numpy(features.astype(np.float32)), torch.from_numpy(labels.astype(np.float32)))

    @torch.no_grad()
    def before_step(self, run: KindRun, batch: Examples) -> None:
        if run.step % CYCLE >= EXPLORED * CYCLE:
            size = math.sqrt(2.0 * run.optimizer.param_groups[0]["lr"] * TEMPERATURE)
            for weights in run.model.parameters():
                weights.add_(torch.randn_like(weights), alpha=size)

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.mse_loss(model(batch.inputs).squeeze(1), batch.labels)

    def rate(self, step: int, steps: int) -> float:
        return cosine(step % CYCLE / CYCLE, last=0.01)
