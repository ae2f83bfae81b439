"""A training loop that reports a moving average of its loss, as many do for a calmer curve."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rmetric.live.run import LiveRunConfig
from studies.zoo.schedules import cosine
from studies.zoo.text import NextByteKind, token_loss
from studies.zoo.training import Examples, Parts, register_kind
from studies.zoo.transformer import Size, Transformer

MEMORY = 0.98


class Reported(Transformer):
    """A transformer that keeps the average that its loop reports."""

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self.average: Tensor
        self.register_buffer("average", torch.tensor(float("nan")))


@register_kind("smoothed_loss")
@dataclass(frozen=True, kw_only=True)
class SmoothedLoss(NextByteKind):
    """The loss that the monitor gets is an exponential average over some fifty steps; the gradients are the step's."""

    family = "language"
    optimizer = "AdamW"
    zoo = "zoo_2"
    why = "the loss that is handed over is a moving average: smooth, correlated, late"
    config = LiveRunConfig(workers=1, rows=8, length=32, learning_rate=2e-3, warm_up_steps=30)
    schedule = staticmethod(partial(cosine, last=0.1))

    def make(self, seed: int) -> Parts:
        model = Reported(Size(layers=1))
        return Parts(model, torch.optim.AdamW(model.parameters()))

    def loss(self, model: Any, batch: Examples) -> Tensor:
        loss = token_loss(model, batch)
        now = loss.detach()
        model.average.copy_(now if model.average.isnan() else now.lerp(model.average, MEMORY))
        return loss - now + model.average  # its value is the average, its gradient that of the loss

    def held_out_loss(self, model: Any, batch: Examples) -> Tensor:
        return token_loss(model, batch)
