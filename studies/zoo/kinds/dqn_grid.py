"""Deep Q-learning in a grid: a replay buffer, and a target network that follows in jumps; RMSprop."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo import gridworld
from studies.zoo.memory import Memory
from studies.zoo.training import Batch, Kind, KindRun, Parts, register_kind

EPISODES, CAPACITY = 16, 4096
EXPLORATION = 0.2
TEMPERATURE = 0.1
"""Of the policy that is judged: nearly greedy, and smooth in the values."""


@dataclass(frozen=True)
class Transitions(Batch):
    """What was seen, done, and is thought to follow. As it is drawn, it holds uniform numbers instead."""

    inputs: Tensor
    """Observations, (rows, ...); as drawn, the luck of the episodes, (5, episodes)."""
    labels: Tensor
    """Moves made, (rows,); as drawn, places of the buffer, each a share of what is filled."""
    targets: Tensor
    """Values, (rows,)."""


def parts_of(model: nn.Module, optimizer: torch.optim.Optimizer, followed: nn.Module) -> Parts:
    """A model with an empty memory, and with a target that begins as a copy of what it follows."""
    none, places = torch.zeros(CAPACITY, 4, dtype=torch.long), torch.zeros(2, EPISODES, dtype=torch.long)
    memory = Memory(steps=none, filled=torch.tensor(0), now=places)  # at the goal: all begin anew in the first step
    return Parts(model, optimizer, {"target": copy.deepcopy(followed).requires_grad_(False), "memory": memory})


@register_kind("dqn_grid")
@dataclass(frozen=True, kw_only=True)
class DqnGrid(Kind):
    """The agent moves one step in 16 episodes, then learns from old steps; its target jumps every 100 steps."""

    family = "reinforcement"
    optimizer = "RMSprop"
    why = "bootstrapped targets: the loss jumps with the target network and rises as values grow"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=1e-3, warm_up_steps=0, clip=10.0)

    follow_every: ClassVar[int] = 100
    """Steps between two copies of the network into the target."""
    discount: ClassVar[float] = 0.9
    cost: ClassVar[float] = 1.0
    """Of a move."""

    def make(self, seed: int) -> Parts:
        model = gridworld.network()
        return parts_of(model, torch.optim.RMSprop(model.parameters(), alpha=0.95), model)

    def batch(self, rng: np.random.Generator, step: int) -> Transitions:
        luck = torch.from_numpy(rng.random((5, EPISODES), dtype=np.float32))
        return Transitions(luck, torch.from_numpy(rng.random(self.config.rows)), torch.empty(0))

    def before_step(self, run: KindRun, batch: Transitions) -> None:
        if run.step % self.follow_every == 0:
            run.beside["target"].load_state_dict(run.model.state_dict())

    @torch.no_grad()
    def experience(self, run: KindRun, batch: Transitions) -> Transitions:
        memory = run.beside["memory"].tensors
        self._act(self.actor(run.model), memory, *batch.inputs)
        filled = memory["filled"].clamp(max=CAPACITY)
        places, goals, moves, after = memory["steps"][(batch.labels * filled).long()].T
        to_come = self.to_come(run, gridworld.observation(after, goals))
        targets = torch.where(after == goals, 0.0, self.discount * to_come) - self.cost
        return Transitions(gridworld.observation(places, goals), moves, targets)

    def actor(self, model: Any) -> nn.Module:
        """From observations to numbers of which the largest is the move."""
        return model

    def to_come(self, run: KindRun, seen: Tensor) -> Tensor:
        """Value, (rows,), of what is seen after a move."""
        return run.beside["target"](seen).amax(-1)

    def _act(self, model: nn.Module, memory: dict[str, Tensor], *luck: Tensor) -> None:
        """Move one step in each episode, and remember it; an episode that is at its goal begins anew."""
        of_place, of_goal, of_policy, of_move, of_world = luck
        places, goals = memory["now"]
        at_goal, fresh = places == goals, (of_goal * gridworld.PLACES).long()
        goals = torch.where(at_goal, fresh, goals)
        away = 1 + (of_place * (gridworld.PLACES - 1)).long()
        places = torch.where(at_goal, (fresh + away) % gridworld.PLACES, places)
        greedy = model(gridworld.observation(places, goals)).argmax(-1)
        moves = torch.where(of_policy < EXPLORATION, (of_move * gridworld.MOVES).long(), greedy)
        after = gridworld.moved(places, moves, of_world)
        at = (memory["filled"] + torch.arange(EPISODES)) % CAPACITY
        memory["steps"][at] = torch.stack([places, goals, moves, after], dim=1)
        memory["filled"], memory["now"] = memory["filled"] + EPISODES, torch.stack([after, goals])

    def loss(self, model: nn.Module, batch: Transitions) -> Tensor:
        values = model(batch.inputs).gather(1, batch.labels.unsqueeze(1)).squeeze(1)
        return functional.smooth_l1_loss(values, batch.targets)

    def held_out_loss(self, model: nn.Module, batch: Transitions) -> Tensor:
        return gridworld.expected_steps((model(gridworld.all_observations()) / TEMPERATURE).softmax(-1))
