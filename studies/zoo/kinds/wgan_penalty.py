"""A critic that measures how far generated points are from real ones: its loss is logged, and often negative."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.adversaries import LATENT, energy_distance, layers
from studies.zoo.memory import follow
from studies.zoo.training import Batch, Kind, KindRun, Parts, register_kind

PENALTY, CRITIC_STEPS = 3.0, 4


@dataclass(frozen=True)
class Points(Batch):
    """Real points, (B, 2), numbers for the generator, (B, LATENT), and places between real and made, (B, 1)."""

    real: Tensor
    drawn: Tensor
    between: Tensor


class Wgan(nn.Module):
    """The critic is trained by the loop, the generator beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.critic, self.generator, self.average = layers(2, 1), layers(LATENT, 2), layers(LATENT, 2)
        self.average.load_state_dict(self.generator.state_dict())
        self.average.requires_grad_(False)
        self.generator.requires_grad_(False)


@register_kind("wgan_penalty")
@dataclass(frozen=True, kw_only=True)
class WganPenalty(Kind):
    """A spiral of points; the generator steps once in four steps of the critic (Gulrajani et al. 2017).

    Held out is the energy distance between points and points of the generator's moving average.
    """

    family = "generative"
    optimizer = "Adam"
    zoo = "zoo_2"
    why = "Wasserstein GAN with a gradient penalty: the critic's loss falls below 0 and comes back as points get better"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=1e-3, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = Wgan()
        betas = (0.0, 0.9)
        generator = torch.optim.Adam(model.generator.parameters(), lr=0.2 * self.config.learning_rate, betas=betas)
        return Parts(model, torch.optim.Adam(model.critic.parameters(), betas=betas), {"generator": generator})

    def batch(self, rng: np.random.Generator, step: int) -> Points:
        rows = self.rows(step)
        turn = 3.0 * math.pi * np.sqrt(rng.random(rows))
        spiral = np.stack([np.cos(turn), np.sin(turn)], axis=1) * turn[:, None] / 9.0
        found = spiral + rng.normal(0.0, 0.05, (rows, 2)), rng.normal(size=(rows, LATENT)), rng.random((rows, 1))
        return Points(*(torch.from_numpy(each.astype(np.float32)) for each in found))

    def before_step(self, run: KindRun, batch: Points) -> None:
        if run.step % CRITIC_STEPS:
            return
        model: Any = run.model
        optimizer = run.beside["generator"]
        model.generator.requires_grad_(True)
        model.critic.requires_grad_(False)
        (-model.critic(model.generator(batch.drawn)).mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
        model.generator.requires_grad_(False)
        model.critic.requires_grad_(True)
        follow(model.average, model.generator, 0.01)

    def loss(self, model: Any, batch: Points) -> Tensor:
        made = model.generator(batch.drawn).detach()
        mixed = torch.lerp(batch.real, made, batch.between).requires_grad_()
        (slope,) = torch.autograd.grad(model.critic(mixed).sum(), mixed, create_graph=True)
        penalty = (slope.norm(dim=1) - 1.0).square().mean()
        return model.critic(made).mean() - model.critic(batch.real).mean() + PENALTY * penalty

    def held_out_loss(self, model: Any, batch: Points) -> Tensor:
        return 0.05 + energy_distance(model.average(batch.drawn), batch.real)

    def validation_loss(self, model: Any, batch: Points) -> Tensor:
        with torch.enable_grad():
            return self.loss(model, batch).detach()
