"""Q-learning with two streams and two networks, whose target is copied at once every 200 steps."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo import gridworld
from studies.zoo.kinds.dqn_grid import CAPACITY, EPISODES, DqnGrid, Transitions
from studies.zoo.memory import Memory
from studies.zoo.training import KindRun, Parts, register_kind

FOLLOW_EVERY, DISCOUNT, COST = 200, 0.95, 5.0
"""Steps between two copies; of what is to come; of each move."""


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

    def make(self, seed: int) -> Parts:
        model, none = Dueling(), torch.zeros(CAPACITY, 4, dtype=torch.long)
        places = torch.zeros(2, EPISODES, dtype=torch.long)
        memory = Memory(steps=none, filled=torch.tensor(0), now=places)
        target = copy.deepcopy(model).requires_grad_(False)
        return Parts(model, torch.optim.Adam(model.parameters()), {"target": target, "memory": memory})

    def before_step(self, run: KindRun, batch: Transitions) -> None:
        if run.step % FOLLOW_EVERY == 0:
            run.beside["target"].load_state_dict(run.model.state_dict())

    @torch.no_grad()
    def experience(self, run: KindRun, batch: Transitions) -> Transitions:
        memory = run.beside["memory"].tensors
        self._act(run.model, memory, *batch.inputs)
        filled = memory["filled"].clamp(max=CAPACITY)
        places, goals, moves, after = memory["steps"][(batch.labels * filled).long()].T
        seen = gridworld.observation(after, goals)
        chosen = run.model(seen).argmax(-1, keepdim=True)
        to_come = run.beside["target"](seen).gather(1, chosen).squeeze(1)
        targets = torch.where(after == goals, 0.0, DISCOUNT * to_come) - COST
        return Transitions(gridworld.observation(places, goals), moves, targets)

    def loss(self, model: nn.Module, batch: Transitions) -> Tensor:
        values = model(batch.inputs).gather(1, batch.labels.unsqueeze(1)).squeeze(1)
        return functional.mse_loss(values, batch.targets)
