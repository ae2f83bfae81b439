"""An autoencoder of smooth signals, whose errors become tiny."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.schedules import cosine
from studies.zoo.training import Examples, Kind, Parts, register_kind


@register_kind("signal_autoencoder")
@dataclass(frozen=True, kw_only=True)
class SignalAutoencoder(Kind):
    """Damped oscillations through six numbers: the squared error falls from 0.1 to 1e-4 and below."""

    family = "generative"
    optimizer = "Adam"
    why = "squared errors near 1e-4, far below 1 and still falling"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=3e-3, warm_up_steps=20, clip=math.inf)
    schedule = staticmethod(partial(cosine, last=0.01))

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(
            nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 6), nn.Linear(6, 64), nn.GELU(), nn.Linear(64, 32)
        )
        return Parts(model, torch.optim.Adam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        rows = self.rows(step)
        times = np.linspace(0.0, 1.0, 32)
        frequency, damping, phase = (
            rng.uniform(low, high, (rows, 1)) for low, high in ((0.5, 1.5), (0.0, 2.0), (0.0, 2.0 * np.pi))
        )
        signals = 0.5 * np.exp(-damping * times) * np.sin(2.0 * np.pi * frequency * times + phase)
        drawn = torch.from_numpy(signals.astype(np.float32))
        return Examples(drawn, drawn)

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.mse_loss(model(batch.inputs), batch.labels)
