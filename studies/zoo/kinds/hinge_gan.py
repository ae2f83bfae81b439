"""A generator of digits against a discriminator with a hinge loss and normalised weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm

from rmetric.live.run import LiveRunConfig
from studies.zoo.adversaries import energy_distance, step_discriminator
from studies.zoo.data import digits
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind

LATENT, PIXELS, WIDTH = 16, 64, 96


class HingeGan(nn.Module):
    """Generator, its moving average, and a discriminator whose layers lengthen no vector."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.average = self.made(), self.made()
        self.average.load_state_dict(self.generator.state_dict())
        self.average.requires_grad_(False)
        normal = [spectral_norm(nn.Linear(into, out)) for into, out in ((PIXELS, WIDTH), (WIDTH, WIDTH), (WIDTH, 1))]
        self.discriminator = nn.Sequential(normal[0], nn.LeakyReLU(0.2), normal[1], nn.LeakyReLU(0.2), normal[2])
        self.discriminator.requires_grad_(False)

    @staticmethod
    def made() -> nn.Module:
        """A fresh generator."""
        return nn.Sequential(
            nn.Linear(LATENT, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, PIXELS),
            nn.Sigmoid(),
        )  # fmt: skip


@register_kind("hinge_gan")
@dataclass(frozen=True, kw_only=True)
class HingeGanDigits(Kind):
    """The generator's loss is a score: its sign and size say nothing (Miyato et al. 2018).

    Held out is the energy distance between images and images of the generator's moving average.
    """

    family = "generative"
    optimizer = "Adam"
    zoo = "zoo_2"
    why = "hinge GAN: a loss around 0 of either sign that wanders; spectral normalisation changes buffers every step"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=5e-4, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model, betas = HingeGan(), (0.0, 0.99)
        beside = torch.optim.Adam(model.discriminator.parameters(), lr=2.0 * self.config.learning_rate, betas=betas)
        return Parts(model, torch.optim.Adam(model.generator.parameters(), betas=betas), {"discriminator": beside})

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        rows = self.rows(step)
        images = digits().draw(rng, rows, held_out=step == 0).inputs.flatten(1)
        return Examples(torch.from_numpy(rng.standard_normal((rows, LATENT), dtype=np.float32)), images)

    def before_step(self, run: KindRun, batch: Examples) -> None:
        step_discriminator(
            run, batch, lambda real, made: (functional.relu(1.0 - real) + functional.relu(1.0 + made)).mean()
        )

    def loss(self, model: Any, batch: Examples) -> Tensor:
        return -model.discriminator(model.generator(batch.inputs)).mean()

    def held_out_loss(self, model: Any, batch: Examples) -> Tensor:
        return 0.05 + energy_distance(model.average(batch.inputs), batch.labels)

    def validation_loss(self, model: Any, batch: Examples) -> Tensor:
        return self.loss(model, batch)
