"""A network whose weights and activations are rounded from the middle of its training on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import DigitsKind
from studies.zoo.training import Examples, KindRun, Parts, register_kind

QUANTISED_FROM, WEIGHT_LEVELS, ACTIVATION_LEVELS = 700, 1, 7
"""Step; largest whole number that a weight and an activation are rounded to."""


def rounded(values: Tensor, levels: int) -> Tensor:
    """Values on an even grid up to the largest of them; the gradient passes straight through."""
    unit = values.detach().abs().amax().clamp(min=1e-8) / levels
    return values + ((values / unit).round() * unit - values).detach()


class Quantised(nn.Module):
    """Three layers, rounded or not."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 96), nn.Linear(96, 96), nn.Linear(96, 10)])
        self.on: Tensor
        self.register_buffer("on", torch.tensor(False))

    def forward(self, images: Tensor) -> Tensor:
        """Logits, (B, 10)."""
        hidden = images.flatten(1)
        for layer in self.layers:
            if layer is not self.layers[0]:
                hidden = functional.relu(hidden)
            weight: Any = layer.weight
            if self.on:
                weight, hidden = rounded(weight, WEIGHT_LEVELS), rounded(hidden, ACTIVATION_LEVELS)
            hidden = functional.linear(hidden, weight, layer.bias)  # type: ignore[arg-type]
        return hidden


@register_kind("quantised_midway")
@dataclass(frozen=True, kw_only=True)
class QuantisedMidway(DigitsKind):
    """Quantisation-aware training with three values a weight from step 700 on (Jacob et al. 2018)."""

    family = "vision"
    optimizer = "Adamax"
    zoo = "zoo_2"
    why = "fake quantisation is switched on at step 700: the loss jumps to another level and noise"
    config = LiveRunConfig(workers=1, rows=48, learning_rate=2e-3, warm_up_steps=20, clip=math.inf)
    noise = 0.2

    def make(self, seed: int) -> Parts:
        model = Quantised()
        return Parts(model, torch.optim.Adamax(model.parameters()))

    def planned(self, step: int) -> str:
        return "quantisation is switched on" if step == QUANTISED_FROM else ""

    def before_step(self, run: KindRun, batch: Examples) -> None:
        on: Any = run.model.on
        on.fill_(run.step >= QUANTISED_FROM)

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.cross_entropy(model(batch.inputs), batch.labels, label_smoothing=0.05)
