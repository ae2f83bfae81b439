"""An energy that is low where the data are and high where its own samples are: chains of noisy gradient steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.memory import Memory
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind

CHAINS, MOVES, SIZE, NOISE, SIDE, BOUND = 128, 4, 0.02, 0.2, 48, 3.0
"""Chains; their moves a step; a move along the slope and its noise; a grid of so many places on [-BOUND, BOUND]."""


class Energy(nn.Module):
    """A number for each point; far away it grows with the distance."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1))

    def forward(self, points: Tensor) -> Tensor:
        """Energies, (B,), of points, (B, 2)."""
        energies: Tensor = self.layers(points).squeeze(1) + 0.1 * points.square().sum(dim=1)
        return energies


@register_kind("langevin_energy")
@dataclass(frozen=True, kw_only=True)
class LangevinEnergy(Kind):
    """Persistent contrastive divergence: the loss stays near 0, of either sign, and says nothing of progress.

    Held out is the exact likelihood of two half moons, by a sum over a grid in place of the integral.

    **Source:** Du, Mordatch 2019, Implicit Generation and Modeling with Energy-Based Models.
    """

    family = "generative"
    optimizer = "Adam"
    zoo = "zoo_2"
    why = "energy-based model, samples by Langevin dynamics: a difference of two means as loss, around 0"
    config = LiveRunConfig(workers=1, rows=CHAINS, learning_rate=1e-3, warm_up_steps=0, clip=5.0)

    def make(self, seed: int) -> Parts:
        model = Energy()
        chains = Memory(points=torch.randn(CHAINS, 2))
        return Parts(model, torch.optim.Adam(model.parameters(), betas=(0.5, 0.99)), {"chains": chains})

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        rows = self.rows(step)
        angle, upper = math.pi * rng.random(rows), rng.random(rows) < 0.5
        across = np.where(upper, np.cos(angle) - 0.5, 0.5 - np.cos(angle))
        along = np.where(upper, np.sin(angle) - 0.25, 0.25 - np.sin(angle))
        points = 1.2 * np.stack([across, along], axis=1) + rng.normal(0.0, 0.15, (rows, 2))
        return Examples(torch.from_numpy(points.astype(np.float32)), torch.zeros(rows, 2))

    def experience(self, run: KindRun, batch: Examples) -> Examples:
        """The batch, and as its labels where the chains have gone."""
        chains = run.beside["chains"].tensors
        points, rng = chains["points"], run.rng("langevin")
        for _ in range(MOVES):
            points = points.detach().requires_grad_()
            (slope,) = torch.autograd.grad(run.model(points).sum(), points)
            noise = torch.from_numpy(rng.standard_normal(points.shape, dtype=np.float32))
            points = (points - SIZE * slope + NOISE * noise).clamp(-BOUND, BOUND).detach()
        chains["points"] = points
        return Examples(batch.inputs, points)

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        real, made = model(batch.inputs), model(batch.labels)
        return real.mean() - made.mean() + 1e-3 * (real.square().mean() + made.square().mean())

    def held_out_loss(self, model: Any, batch: Examples) -> Tensor:
        line = torch.linspace(-BOUND, BOUND, SIDE)
        grid = torch.cartesian_prod(line, line)
        area = (2.0 * BOUND / (SIDE - 1)) ** 2
        return model(batch.inputs).mean() + (-model(grid)).logsumexp(0) + math.log(area)
