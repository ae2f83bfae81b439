"""A network of sines that becomes a photograph: all its pixels in every step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import photographs
from studies.zoo.training import Examples, Kind, Parts, register_kind

SIDE, FREQUENCY = 32, 15.0


@cache
def pixels() -> tuple[Examples, Examples]:
    """Places, from -1 to 1, and brightness of a patch: to train on and held out, the fields of a chessboard."""
    patches = photographs(SIDE).inputs[:, 0]
    detail = patches.diff(dim=2).square().mean(dim=(1, 2))
    image = patches[detail.argsort(stable=True)[len(patches) // 2]]
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    places = torch.stack([rows, columns], dim=-1) * (2.0 / (SIDE - 1)) - 1.0
    white = (rows + columns) % 2 == 0
    return Examples(places[white], image[white]), Examples(places[~white], image[~white])


class Sine(nn.Module):
    """A layer whose activation is a sine, with the first weights of Sitzmann et al."""

    def __init__(self, into: int, out: int, bound: float) -> None:
        super().__init__()
        self.layer = nn.Linear(into, out)
        nn.init.uniform_(self.layer.weight, -bound, bound)

    def forward(self, inputs: Tensor) -> Tensor:
        """Sines, (B, out)."""
        return torch.sin(FREQUENCY * self.layer(inputs))


@register_kind("siren_image")
@dataclass(frozen=True, kw_only=True)
class SirenImage(Kind):
    """The loss falls by four orders of magnitude without any noise of sampling (Sitzmann et al. 2020).

    Held out is the error of pixels between those that are trained on, with 1 % of the range added.
    """

    family = "vision"
    optimizer = "Adam"
    zoo = "zoo_2"
    why = "an image as a function, full batch: a smooth loss over orders of magnitude, with rare sharp spikes"
    config = LiveRunConfig(workers=1, rows=SIDE**2 // 2, learning_rate=1e-3, warm_up_steps=0, clip=math.inf)

    def make(self, seed: int) -> Parts:
        width, bound = 48, math.sqrt(6.0 / 48) / FREQUENCY
        model = nn.Sequential(Sine(2, width, 0.5), Sine(width, width, bound), nn.Linear(width, 1))
        return Parts(model, torch.optim.Adam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        trained_on, between = pixels()
        if step:
            return trained_on
        chosen = torch.from_numpy(rng.choice(len(between.labels), self.held_out_rows, replace=False))
        return Examples(between.inputs[chosen], between.labels[chosen])

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.mse_loss(model(batch.inputs).squeeze(1), batch.labels)

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return 0.01 + self.loss(model, batch).sqrt()
