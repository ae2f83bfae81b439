"""Images in one step out of noise: neighbouring levels of noise are to end alike, and levels double three times."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo.adversaries import energy_distance
from studies.zoo.data import digits
from studies.zoo.memory import follow
from studies.zoo.stages import holding
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind

PIXELS, SPREAD, LEAST, MOST = 64, 0.5, 0.02, 10.0
"""Pixels of an image and their spread; bounds of the noise's spread."""
LEVELS_FROM = {0: 8, 351: 16, 701: 32, 1051: 64}
"""Step → levels of noise from then on."""
SOFTENED = 0.05
"""Differences up to about this one count as squares, larger ones as they are."""


def level(place: Tensor) -> Tensor:
    """Spread of the noise at a place from 0 to 1; most places have little."""
    return (LEAST ** (1 / 7) + place * (MOST ** (1 / 7) - LEAST ** (1 / 7))) ** 7


def layers(width: int = 128) -> nn.Sequential:
    """From an image and the logarithm of its noise to what is to be changed."""
    return nn.Sequential(
        nn.Linear(PIXELS + 1, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, PIXELS)
    )


class Consistency(nn.Module):
    """The network, a moving average of it that makes images, and how many levels of noise there are."""

    levels: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.network, self.average = layers(), layers()
        self.average.load_state_dict(self.network.state_dict())
        self.average.requires_grad_(False)
        self.register_buffer("levels", torch.tensor(LEVELS_FROM[0]))

    def clean(self, network: nn.Module, noisy: Tensor, noise: Tensor) -> Tensor:
        """Images, (B, PIXELS), out of noisy ones by the spread of their noise, (B, 1); those with the least stay."""
        scale = (noise.square() + SPREAD**2).rsqrt()
        said = network(torch.cat([scale * noisy, 0.25 * noise.log()], dim=1))
        kept = SPREAD**2 / ((noise - LEAST).square() + SPREAD**2)
        return kept * noisy + SPREAD * (noise - LEAST) * scale * said


@register_kind("consistency_training")
@dataclass(frozen=True, kw_only=True)
class ConsistencyTraining(Kind):
    """Levels lie nearer with each doubling, and the loss halves at a stroke though nothing has been learnt.

    Held out is the energy distance of images made in one step.

    **Source:** Song, Dhariwal 2024, Improved Techniques for Training Consistency Models.
    """

    family = "generative"
    optimizer = "RAdam"
    why = "a network as its own target; levels of noise double every 350 steps, and the loss drops to half at each"
    zoo = "zoo_4"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=1e-3, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        model = Consistency()
        return Parts(model, torch.optim.RAdam(model.network.parameters()))

    def planned(self, step: int) -> str:
        return "levels of noise double" if step in LEVELS_FROM else ""

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        images = 2.0 * digits().of_step(self, rng, step).inputs.flatten(1) - 1.0
        luck = np.concatenate([rng.standard_normal(images.shape), rng.random((len(images), 1))], axis=1)
        return Examples(images, torch.from_numpy(luck).float())

    def before_step(self, run: KindRun, batch: Examples) -> None:
        model: Any = run.model
        model.levels.fill_(holding(LEVELS_FROM, run.step))
        follow(model.average, model.network, 0.02)

    def loss(self, model: Any, batch: Examples) -> Tensor:
        noise, chance = batch.labels[:, :-1], batch.labels[:, -1:]
        gaps = model.levels - 1
        less = (chance.square() * gaps).floor()  # little noise is drawn more often
        below, above = level(less / gaps), level((less + 1.0) / gaps)
        with torch.no_grad():
            target = model.clean(model.network, batch.inputs + below * noise, below)
        said = model.clean(model.network, batch.inputs + above * noise, above)
        apart = ((said - target).square().mean(1) + SOFTENED**2).sqrt() - SOFTENED
        return (apart / (above - below).squeeze(1)).mean()

    def held_out_loss(self, model: Any, batch: Examples) -> Tensor:
        made = model.clean(model.average, MOST * batch.labels[:, :-1], torch.full((len(batch.inputs), 1), MOST))
        return energy_distance(made, batch.inputs)
