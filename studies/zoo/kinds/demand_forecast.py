"""Forecasts of hourly demand by convolutions that look back further with each layer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.schedules import one_cycle
from studies.zoo.training import Examples, Kind, Parts, register_kind

PAST, AHEAD, DAY = 72, 24, 24
"""Hours that are seen, and hours that are to be told."""
OUTAGE = 0.05
"""Chance that a series has hours in which next to nothing is used."""


class Causal(nn.Module):
    """A convolution over the past alone, beside a residual path."""

    def __init__(self, width: int, apart: int) -> None:
        super().__init__()
        self.reach = 2 * apart
        self.layer = nn.utils.parametrizations.weight_norm(nn.Conv1d(width, width, 3, dilation=apart))
        self.dropout = nn.Dropout(0.05)

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, width, hours) to the same."""
        added: Tensor = self.dropout(self.layer(functional.pad(hidden, (self.reach, 0))).relu())
        return hidden + added


class Forecaster(nn.Module):
    """A temporal convolutional network; it sees each series by its own mean and spread."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.into, self.out = nn.Conv1d(1, width, 1), nn.Linear(width, AHEAD)
        self.layers = nn.Sequential(*(Causal(width, apart) for apart in (1, 2, 4, 8, 16)))

    def forward(self, past: Tensor) -> Tensor:
        """What is to come, (B, AHEAD), of what was, (B, PAST)."""
        mean, spread = past.mean(1, keepdim=True), past.std(1, keepdim=True) + 0.1
        hidden = self.layers(self.into(((past - mean) / spread).unsqueeze(1)))
        told: Tensor = mean + spread * self.out(hidden[:, :, -1])
        return told


@register_kind("demand_forecast")
@dataclass(frozen=True, kw_only=True)
class DemandForecast(Kind):
    """Each series has its own level, daily and weekly course, drift and sluggish noise; some have outages.

    **Source:** Bai, Kolter, Koltun 2018, An Empirical Evaluation of Generic Convolutional and Recurrent Networks.
    """

    family = "tabular"
    optimizer = "NAdam"
    why = "a Huber loss of forecasts, with series that differ in size and rare outages; weight normalisation; one cycle"
    zoo = "zoo_4"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=4e-3, warm_up_steps=0, clip=0.5)
    schedule = staticmethod(one_cycle)

    def make(self, seed: int) -> Parts:
        model = Forecaster()
        return Parts(model, torch.optim.NAdam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        rows = self.rows(step)
        hours = np.arange(PAST + AHEAD) + rng.integers(0, 7 * DAY, (rows, 1))
        peak, size = rng.uniform(0.0, 2.0 * math.pi, (2, rows, 1)), np.exp(rng.normal(0.0, 0.4, (3, rows, 1)))
        turn = 2.0 * math.pi * hours / DAY
        demand = size[0] * np.cos(turn + peak[0]) + 0.4 * size[1] * np.cos(2.0 * turn + peak[1])
        demand *= np.where(hours // DAY % 7 < 5, 1.0, 0.5)
        demand += rng.normal(0.0, 2.0, (rows, 1)) + rng.normal(0.0, 0.004, (rows, 1)) * np.arange(PAST + AHEAD)
        noise = rng.normal(0.0, 0.15, demand.shape)
        for hour in range(1, noise.shape[1]):
            noise[:, hour] += 0.7 * noise[:, hour - 1]
        demand += size[2] * noise
        begin, without = rng.integers(0, PAST, (rows, 1)), rng.random((rows, 1)) < OUTAGE
        since = np.arange(PAST + AHEAD) - begin
        demand[without & (since >= 0) & (since < 6)] -= 4.0
        series = torch.from_numpy(demand).float()
        return Examples(series[:, :PAST], series[:, PAST:])

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.huber_loss(model(batch.inputs), batch.labels, delta=0.5)
