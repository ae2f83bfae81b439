"""Advantage actor-critic in a grid: 16 episodes go on side by side, five moves a step; RMSprop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo import gridworld
from studies.zoo.memory import Memory
from studies.zoo.schedules import linear
from studies.zoo.training import Kind, KindRun, Parts, register_kind

EPISODES, MOVES, DISCOUNT, COST = 16, 5, 0.95, 0.1
VALUE_WEIGHT, ENTROPY_WEIGHT = 0.5, 0.01


class ActorCritic(nn.Module):
    """One layer for both: the moves' logits and the value."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(gridworld.SEEN, width), nn.Tanh())
        self.actor, self.critic = nn.Linear(width, gridworld.MOVES), nn.Linear(width, 1)

    def forward(self, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the moves, (..., moves), and the value, (...), of observations."""
        hidden = self.shared(seen)
        return self.actor(hidden).log_softmax(-1), self.critic(hidden).squeeze(-1)


@dataclass(frozen=True)
class Rollout:
    """Moves of all episodes. As it is drawn, it holds uniform numbers: (4, moves, episodes) as inputs."""

    inputs: Tensor
    """Observations, (moves, episodes, ...)."""
    labels: Tensor
    """Moves made, (moves, episodes)."""
    returns: Tensor
    """Discounted rewards up to the last move, and the critic's value from there on, (moves, episodes)."""

    def part(self, index: int, parts: int) -> Self:
        """One of equal parts."""
        return type(self)(*(each.chunk(parts, dim=1)[index] for each in (self.inputs, self.labels, self.returns)))


@register_kind("advantage_actor_critic")
@dataclass(frozen=True, kw_only=True)
class AdvantageActorCritic(Kind):
    """Each step goes on where the last one left the episodes; judged by the exact number of steps to the goal.

    **Source:** Mnih et al. 2016, Asynchronous Methods for Deep Reinforcement Learning. **Deviation:** synchronous.
    """

    family = "reinforcement"
    optimizer = "RMSprop"
    why = "surrogate, value and entropy in one loss of either sign, on 80 correlated moves that are used once"
    zoo = "zoo_4"
    config = LiveRunConfig(workers=1, rows=EPISODES, learning_rate=7e-4, warm_up_steps=0, clip=0.5)
    schedule = staticmethod(partial(linear, last=0.1))

    def make(self, seed: int) -> Parts:
        model = ActorCritic()
        now = torch.zeros(2, EPISODES, dtype=torch.long)  # at the goal: all begin anew with the first move
        optimizer = torch.optim.RMSprop(model.parameters(), alpha=0.99, eps=1e-5)
        return Parts(model, optimizer, {"episodes": Memory(now=now)})

    def batch(self, rng: np.random.Generator, step: int) -> Rollout:
        luck = torch.from_numpy(rng.random((4, MOVES, EPISODES), dtype=np.float32))
        return Rollout(luck, torch.empty(0, EPISODES), torch.empty(0, EPISODES))

    @torch.no_grad()
    def experience(self, run: KindRun, batch: Rollout) -> Rollout:
        episodes = run.beside["episodes"].tensors
        places, goals = episodes["now"]
        seen, made, ended = [], [], []
        for of_place, of_goal, of_policy, of_world in batch.inputs.unbind(1):
            fresh = (of_goal * gridworld.PLACES).long()
            away = (fresh + 1 + (of_place * (gridworld.PLACES - 1)).long()) % gridworld.PLACES
            places, goals = torch.where(places == goals, torch.stack([away, fresh]), torch.stack([places, goals]))
            seen.append(gridworld.observation(places, goals))
            made.append(gridworld.drawn(run.model(seen[-1])[0].exp(), of_policy))
            places = gridworld.moved(places, made[-1], of_world)
            ended.append(places == goals)
        episodes["now"] = torch.stack([places, goals])
        value, returns = run.model(gridworld.observation(places, goals))[1], []
        for end in reversed(ended):
            value = DISCOUNT * value.masked_fill(end, 0.0) - COST
            returns.append(value)
        return Rollout(torch.stack(seen), torch.stack(made), torch.stack(returns[::-1]))

    def loss(self, model: nn.Module, batch: Rollout) -> Tensor:
        known, values = model(batch.inputs)
        chosen = known.gather(-1, batch.labels.unsqueeze(-1)).squeeze(-1)
        surrogate = -(chosen * (batch.returns - values.detach())).mean()
        entropy = -(known.exp() * known).sum(-1).mean()
        return surrogate + VALUE_WEIGHT * functional.mse_loss(values, batch.returns) - ENTROPY_WEIGHT * entropy

    def held_out_loss(self, model: nn.Module, batch: Rollout) -> Tensor:
        return gridworld.expected_steps(model(gridworld.all_observations())[0].exp())
