"""Soft actor-critic in a grid: policy, two critics and a temperature that holds the entropy, in one loss."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo import gridworld
from studies.zoo.kinds.dqn_grid import CAPACITY, DISCOUNT, DqnGrid, Transitions
from studies.zoo.memory import Memory
from studies.zoo.training import KindRun, Parts, register_kind

ENTROPY, FOLLOW = 0.4, 0.02
"""Entropy that the temperature is to hold, nats; share by which the target critics follow in a step."""


class SoftActorCritic(nn.Module):
    """From an observation to logits of the moves and, twice, to values of them."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = gridworld.network()
        self.critics = nn.ModuleList(gridworld.network() for _ in range(2))
        self.log_temperature = nn.Parameter(torch.tensor(-1.0))


def least(critics: nn.Module, seen: Tensor) -> Tensor:
    """The smaller of two critics' values of each move."""
    first, second = (critic(seen) for critic in critics.children())
    return torch.minimum(first, second)


@register_kind("sac_grid")
@dataclass(frozen=True, kw_only=True)
class SacGrid(DqnGrid):
    """Episodes and memory as in deep Q-learning; moves are drawn from the policy, targets follow in every step.

    **Source:** Haarnoja et al. 2018, Soft Actor-Critic Algorithms and Applications; Christodoulou 2019 for moves.
    """

    family = "reinforcement"
    optimizer = "Adam"
    why = "three losses of either sign, of which the critics' grows with the values; a learnt temperature"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=1e-3, warm_up_steps=0, clip=10.0)

    def make(self, seed: int) -> Parts:
        model, none = SoftActorCritic(), torch.zeros(CAPACITY, 4, dtype=torch.long)
        places = torch.zeros(2, 16, dtype=torch.long)  # at the goal: all begin anew in the first step
        memory = Memory(steps=none, filled=torch.tensor(0), now=places)
        target = copy.deepcopy(model.critics).requires_grad_(False)
        return Parts(model, torch.optim.Adam(model.parameters()), {"target": target, "memory": memory})

    def before_step(self, run: KindRun, batch: Transitions) -> None:
        model: Any = run.model
        for old, new in zip(run.beside["target"].parameters(), model.critics.parameters(), strict=True):
            old.data.lerp_(new.data, FOLLOW)

    @torch.no_grad()
    def experience(self, run: KindRun, batch: Transitions) -> Transitions:
        model: Any = run.model
        memory = run.beside["memory"].tensors
        self._act(Sampled(model.actor), memory, *batch.inputs)
        filled = memory["filled"].clamp(max=CAPACITY)
        places, goals, moves, after = memory["steps"][(batch.labels * filled).long()].T
        seen = gridworld.observation(after, goals)
        chances = model.actor(seen).log_softmax(-1)
        soft = least(run.beside["target"], seen) - model.log_temperature.exp() * chances
        targets = torch.where(after == goals, 0.0, DISCOUNT * (chances.exp() * soft).sum(-1)) - 1.0
        return Transitions(gridworld.observation(places, goals), moves, targets)

    def loss(self, model: nn.Module, batch: Transitions) -> Tensor:
        assert isinstance(model, SoftActorCritic)
        move, temperature = batch.labels.unsqueeze(1), model.log_temperature.exp()
        critics = sum(
            functional.mse_loss(critic(batch.inputs).gather(1, move).squeeze(1), batch.targets)
            for critic in model.critics
        )
        chances = model.actor(batch.inputs).log_softmax(-1)
        entropy = -(chances.exp() * chances).sum(-1).mean()
        values = least(model.critics, batch.inputs).detach()
        actor = -(chances.exp() * values).sum(-1).mean() - temperature.detach() * entropy
        return critics + actor + model.log_temperature * (entropy.detach() - ENTROPY)

    def held_out_loss(self, model: nn.Module, batch: Transitions) -> Tensor:
        assert isinstance(model, SoftActorCritic)
        return gridworld.expected_steps(model.actor(gridworld.all_observations()).softmax(-1))


class Sampled(nn.Module):
    """Logits with Gumbel noise: the largest is a draw from the policy."""

    def __init__(self, policy: nn.Module) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, seen: Tensor) -> Tensor:
        """Noisy logits, (..., moves)."""
        logits: Tensor = self.policy(seen)
        return logits - torch.empty_like(logits).exponential_().log()
