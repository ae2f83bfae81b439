"""Soft actor-critic in a grid: policy, two critics and a temperature that holds the entropy, in one loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo import gridworld
from studies.zoo.kinds.dqn_grid import DqnGrid, Transitions, parts_of
from studies.zoo.memory import follow
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
        model = SoftActorCritic()
        return parts_of(model, torch.optim.Adam(model.parameters()), model.critics)

    def before_step(self, run: KindRun, batch: Transitions) -> None:
        model: Any = run.model
        follow(run.beside["target"], model.critics, FOLLOW)

    def actor(self, model: Any) -> nn.Module:
        return Sampled(model.actor)

    def to_come(self, run: KindRun, seen: Tensor) -> Tensor:
        model: Any = run.model
        chances = model.actor(seen).log_softmax(-1)
        soft = least(run.beside["target"], seen) - model.log_temperature.exp() * chances
        return (chances.exp() * soft).sum(-1)

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
