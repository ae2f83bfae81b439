"""A mixture density network: several answers are right, and the loss is the density's logarithm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.schedules import exponential
from studies.zoo.training import Examples, Kind, Parts, register_kind

COMPONENTS = 6


class MixtureDensity(nn.Module):
    """From a number to the shares, means and spreads of Gaussians."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 3 * COMPONENTS)
        )

    def forward(self, inputs: Tensor, answers: Tensor) -> Tensor:
        """Negative log-density, nats, (B,), of answers, (B,), to inputs, (B, 1)."""
        shares, means, log_spreads = self.layers(inputs).chunk(3, dim=1)
        distance = (answers.unsqueeze(1) - means) * (-log_spreads).exp()
        log_density = -0.5 * distance.square() - log_spreads - 0.5 * math.log(2.0 * math.pi)
        return -(shares.log_softmax(1) + log_density).logsumexp(1)


@register_kind("mixture_density")
@dataclass(frozen=True, kw_only=True)
class MixtureDensityKind(Kind):
    """Where did it come from: a curve that folds back, read the other way round (Bishop 1994, section 5).

    Held out is the exponential of the loss, which is positive.
    """

    family = "generative"
    optimizer = "Adam"
    why = "negative log-density below 0; spreads that become narrow, so that single examples weigh much"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=128, learning_rate=5e-3, warm_up_steps=0, clip=5.0)
    schedule = staticmethod(partial(exponential, last=0.02))
    held_out_rows = 1024

    def make(self, seed: int) -> Parts:
        model = MixtureDensity()
        return Parts(model, torch.optim.Adam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        answers = rng.uniform(-1.0, 1.0, self.rows(step))
        inputs = answers + 0.3 * np.sin(2.0 * np.pi * answers) + rng.normal(0.0, 0.05, len(answers))
        return Examples(torch.from_numpy(inputs).float().unsqueeze(1), torch.from_numpy(answers).float())

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return model(batch.inputs, batch.labels).mean()

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return self.loss(model, batch).exp()

    def validation_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return self.loss(model, batch)
