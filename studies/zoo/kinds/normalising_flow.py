"""A normalising flow: log-likelihood of continuous data, whose losses are negative."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.schedules import one_cycle
from studies.zoo.training import Examples, Kind, Parts, register_kind


class Coupling(nn.Module):
    """Half of the coordinates is scaled and moved by what a network says of the other half, then they change places."""

    def __init__(self, size: int, width: int = 32) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(size // 2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, size)
        )

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Points, (B, size), and the logarithm of the change of volume, (B,)."""
        still, moved = points.chunk(2, dim=1)
        scale, move = self.network(still).chunk(2, dim=1)
        scale = 2.0 * torch.tanh(0.5 * scale)
        return torch.cat([moved * scale.exp() + move, still], dim=1), scale.sum(dim=1)


class Flow(nn.Module):
    """Couplings from data to a standard normal (Dinh et al. 2017, RealNVP)."""

    def __init__(self, size: int = 4, depth: int = 6) -> None:
        super().__init__()
        self.couplings = nn.ModuleList(Coupling(size) for _ in range(depth))

    def forward(self, points: Tensor) -> Tensor:
        """Negative log-density, nats, (B,), of points, (B, size)."""
        volume = torch.zeros(len(points))
        for coupling in self.couplings:
            points, change = coupling(points)
            volume = volume + change
        return 0.5 * (points.square() + np.log(2.0 * np.pi)).sum(dim=1) - volume


@register_kind("normalising_flow")
@dataclass(frozen=True, kw_only=True)
class NormalisingFlow(Kind):
    """Positions on two half moons and their neighbours: the loss passes zero and stays negative.

    Held out is the perplexity of a coordinate, which is positive: 5 % of it is 0.05 nats.
    """

    family = "generative"
    optimizer = "RAdam"
    why = "negative losses, which pass zero; one-cycle schedule"
    config = LiveRunConfig(workers=1, rows=128, learning_rate=3e-3, warm_up_steps=0, clip=5.0)
    schedule = staticmethod(one_cycle)
    held_out_rows = 512

    def make(self, seed: int) -> Parts:
        model = Flow()
        return Parts(model, torch.optim.RAdam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        rows = self.rows(step)
        angles, lower = rng.uniform(0.0, np.pi, (rows, 2)), rng.integers(0, 2, (rows, 2))
        across = np.where(lower, 0.5 - np.cos(angles), np.cos(angles) - 0.5)
        up = np.where(lower, 0.25 - np.sin(angles), np.sin(angles) - 0.25)
        points = np.concatenate([across, up], axis=1) + rng.normal(0.0, 0.05, (rows, 4))
        drawn = torch.from_numpy(0.4 * points.astype(np.float32))
        return Examples(drawn, drawn)

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return model(batch.inputs).mean()

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return (self.loss(model, batch) / batch.inputs.shape[1]).exp()

    def validation_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return self.loss(model, batch)
