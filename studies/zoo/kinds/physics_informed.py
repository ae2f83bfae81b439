"""A network that solves a differential equation: no data, losses over six orders of magnitude."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.schedules import cosine
from studies.zoo.training import Examples, Kind, Parts, register_kind


class Solution(nn.Module):
    """A function on [0, 1] that is 0 at both ends."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(1, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )

    def forward(self, places: Tensor) -> Tensor:
        """Values, (B, 1), at places, (B, 1)."""
        return places * (1.0 - places) * self.layers(2.0 * places - 1.0)


@register_kind("physics_informed")
@dataclass(frozen=True, kw_only=True)
class PhysicsInformed(Kind):
    """Squared residual of u'' = -sin(2πx)(2π)², by derivatives of derivatives (Raissi et al. 2019).

    Held out is the error of the solution, with 1 % of its size added: what is smaller than that is good enough.
    """

    family = "tabular"
    optimizer = "Adam"
    why = "no data; second derivatives; the loss falls from 1,000 to 1e-3, with spikes on the way"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=5e-3, warm_up_steps=50, clip=math.inf)
    schedule = staticmethod(cosine)

    def make(self, seed: int) -> Parts:
        model = Solution()
        return Parts(model, torch.optim.Adam(model.parameters(), betas=(0.9, 0.99)))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        places = torch.from_numpy(rng.random((self.rows(step), 1), dtype=np.float32))
        return Examples(places, torch.sin(2.0 * torch.pi * places))

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        places = batch.inputs.clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(places).sum(), places, create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), places, create_graph=True)
        return functional.mse_loss(bend, -((2.0 * torch.pi) ** 2) * batch.labels)

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return 0.01 + functional.mse_loss(model(batch.inputs), batch.labels).sqrt()
