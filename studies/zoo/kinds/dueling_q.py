"""Q-learning with two streams and two networks, whose target is copied at once every 200 steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo import gridworld
from studies.zoo.kinds.dqn_grid import DqnGrid, Transitions, parts_of
from studies.zoo.training import KindRun, Parts, register_kind


class Dueling(nn.Module):
    """Value of a place and advantage of each move, which make the values of the moves (Wang et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(gridworld.SEEN, 64), nn.ReLU())
        self.value, self.advantage = nn.Linear(64, 1), nn.Linear(64, gridworld.MOVES)

    def forward(self, seen: Tensor) -> Tensor:
        """Values of the moves, (..., moves)."""
        hidden = self.trunk(seen)
        advantage = self.advantage(hidden)
        values: Tensor = self.value(hidden) + advantage - advantage.mean(-1, keepdim=True)
        return values


@register_kind("dueling_q")
@dataclass(frozen=True, kw_only=True)
class DuelingQ(DqnGrid):
    """Values grow with each copy of the target, and squared errors with them: the loss is a saw.

    **Source:** van Hasselt et al. 2016, Deep Reinforcement Learning with Double Q-learning.
    """

    family = "reinforcement"
    optimizer = "Adam"
    zoo = "zoo_2"
    why = "hard target copies every 200 steps: the loss leaps up at each, a thousandfold at first; squared errors"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=2e-3, warm_up_steps=0, clip=10.0)

    follow_every, discount, cost = 200, 0.95, 5.0

    def make(self, seed: int) -> Parts:
        model = Dueling()
        return parts_of(model, torch.optim.Adam(model.parameters()), model)

    def to_come(self, run: KindRun, seen: Tensor) -> Tensor:
        chosen = run.model(seen).argmax(-1, keepdim=True)
        return run.beside["target"](seen).gather(1, chosen).squeeze(1)

    def loss(self, model: nn.Module, batch: Transitions) -> Tensor:
        values = model(batch.inputs).gather(1, batch.labels.unsqueeze(1)).squeeze(1)
        return functional.mse_loss(values, batch.targets)
