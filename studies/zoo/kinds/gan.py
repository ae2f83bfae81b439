"""Two networks against each other: the loss says who is ahead, not how good they are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.adversaries import LATENT, energy_distance, layers, step_discriminator
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind


class Gan(nn.Module):
    """Generator of points in the plane, its moving average, and the discriminator."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.average, self.discriminator = layers(LATENT, 2), layers(LATENT, 2), layers(2, 1)
        self.average.load_state_dict(self.generator.state_dict())
        self.average.requires_grad_(False)
        self.discriminator.requires_grad_(False)


@register_kind("gan")
@dataclass(frozen=True, kw_only=True)
class GanRing(Kind):
    """Eight clusters on a ring. The training loss is the generator's, and wanders.

    Held out is what matters: the energy distance between points and generated points, of the generator's
    moving average, whose weights wander less.
    """

    family = "generative"
    optimizer = "Adam"
    why = "adversarial: the generator's cross entropy rises and falls as the discriminator learns"
    config = LiveRunConfig(workers=1, rows=128, learning_rate=1e-3, warm_up_steps=0, clip=math.inf)
    held_out_rows = 512

    def make(self, seed: int) -> Parts:
        model = Gan()
        betas = (0.5, 0.999)
        beside = torch.optim.Adam(model.discriminator.parameters(), lr=self.config.learning_rate, betas=betas)
        generator = torch.optim.Adam(model.generator.parameters(), betas=betas)
        return Parts(model, generator, {"discriminator": beside})

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        rows = self.rows(step)
        angles = rng.integers(0, 8, rows) * (math.pi / 4.0)
        points = np.stack([np.cos(angles), np.sin(angles)], axis=1) + rng.normal(0.0, 0.05, (rows, 2))
        drawn = rng.standard_normal((rows, LATENT), dtype=np.float32)
        return Examples(torch.from_numpy(drawn), torch.from_numpy(points.astype(np.float32)))

    def before_step(self, run: KindRun, batch: Examples) -> None:
        step_discriminator(
            run, batch, lambda real, made: (functional.softplus(-real) + functional.softplus(made)).mean()
        )

    def loss(self, model: Any, batch: Examples) -> Tensor:
        return functional.softplus(-model.discriminator(model.generator(batch.inputs))).mean()

    def held_out_loss(self, model: Any, batch: Examples) -> Tensor:
        return energy_distance(model.average(batch.inputs), batch.labels)
