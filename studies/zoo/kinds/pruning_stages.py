"""A network whose smallest weights are taken out in four stages."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.data import DigitsKind
from studies.zoo.schedules import linear
from studies.zoo.training import Examples, KindRun, Parts, register_kind

PRUNED = {400: 0.6, 600: 0.8, 800: 0.9, 1000: 0.95}
"""Step → share of the weights of each layer that is gone from then on."""


class Pruned(nn.Linear):
    """A layer of whose weights some are kept."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__(into, out)
        self.kept: Tensor
        self.register_buffer("kept", torch.ones(out, into))

    def forward(self, inputs: Tensor) -> Tensor:
        """As of a linear layer."""
        return functional.linear(inputs, self.weight * self.kept, self.bias)

    def prune(self, share: float) -> None:
        """Keep all but this share of the weights."""
        size = (self.weight * self.kept).abs().detach()
        self.kept.copy_(size > size.flatten().kthvalue(round(share * size.numel())).values)


@register_kind("pruning_stages")
@dataclass(frozen=True, kw_only=True)
class PruningStages(DigitsKind):
    """Gradual magnitude pruning up to 95 % (Zhu, Gupta 2017): the loss jumps at each stage, and recovers."""

    family = "vision"
    optimizer = "SGD"
    zoo = "zoo_2"
    why = "60, 80, 90, 95 % of the weights are set to 0 at four steps: the loss jumps and comes back"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=0.05, warm_up_steps=20, clip=math.inf)
    noise = 0.3
    schedule = staticmethod(partial(linear, last=0.1))

    def make(self, seed: int) -> Parts:
        model = nn.Sequential(nn.Flatten(), Pruned(64, 128), nn.ReLU(), Pruned(128, 64), nn.ReLU(), nn.Linear(64, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
        return Parts(model, optimizer)

    def planned(self, step: int) -> str:
        return "weights are pruned" if step in PRUNED else ""

    def before_step(self, run: KindRun, batch: Examples) -> None:
        if run.step in PRUNED:
            for layer in run.model.modules():
                if isinstance(layer, Pruned):
                    layer.prune(PRUNED[run.step])
