"""A multi-layer perceptron in two processes, each with half of every batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import DigitsKind
from studies.zoo.schedules import cosine
from studies.zoo.training import Examples, Parts, register_kind


@register_kind("ddp_mlp")
@dataclass(frozen=True, kw_only=True)
class DdpMlp(DigitsKind):
    """The spread of the workers' gradients is measured, not taken from a window of steps."""

    family = "vision"
    optimizer = "SGD"
    why = "two processes of DDP, SGD with Nesterov momentum"
    processes = 2
    config = LiveRunConfig(workers=1, rows=64, learning_rate=0.03, warm_up_steps=0, clip=math.inf)
    schedule = staticmethod(cosine)

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))
        rate = self.config.learning_rate
        return Parts(model, torch.optim.SGD(model.parameters(), rate, momentum=0.9, weight_decay=1e-3, nesterov=True))

    def loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return functional.cross_entropy(model(batch.inputs), batch.labels, label_smoothing=0.1)
