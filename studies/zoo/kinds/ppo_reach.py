"""PPO with continuous actions: each set of episodes is used for four steps, so the loss repeats with period four."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.memory import Memory
from studies.zoo.training import Kind, KindRun, Parts, register_kind

MOMENTS, EPOCHS = 16, 4
DISCOUNT, RATIO_LIMIT, VALUE_WEIGHT, ENTROPY_WEIGHT = 0.9, 0.2, 0.5, 0.003
INTERVAL_S = 0.2


class ActorCritic(nn.Module):
    """From position and speed to the mean force, and to the value; the spread of the force is a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        self.critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_spread = nn.Parameter(torch.full((2,), -0.5))

    def log_probability(self, states: Tensor, forces: Tensor) -> Tensor:
        """Of forces, (..., 2), in states, (..., 4); up to a constant."""
        distance = (forces - self.actor(states)) / self.log_spread.exp()
        return -(0.5 * distance.square() + self.log_spread).sum(-1)


def after(states: Tensor, forces: Tensor) -> Tensor:
    """Position and speed of a point mass with friction, (episodes, 4), one interval on."""
    position, speed = states.chunk(2, dim=-1)
    speed = 0.9 * speed + INTERVAL_S * forces.clamp(-3.0, 3.0)
    return torch.cat([position + INTERVAL_S * speed, speed], dim=-1)


def cost(states: Tensor) -> Tensor:
    """What a moment costs: the distance from the origin, softened, and a little for speed; (episodes,)."""
    position, speed = states.chunk(2, dim=-1)
    return (0.01 + position.square().sum(-1)).sqrt() + 0.05 * speed.square().sum(-1)


@dataclass(frozen=True)
class Episodes:
    """Starts and luck of episodes; once they are played, all that the loss needs."""

    inputs: Tensor
    """States, (moments, episodes, 4); before, the first ones."""
    labels: Tensor
    """Forces, (moments, episodes, 2); before, normal numbers."""
    log_probability: Tensor
    advantages: Tensor
    returns: Tensor

    def part(self, index: int, parts: int) -> Self:
        """One of equal parts."""
        return type(self)(*(each.chunk(parts, dim=min(1, each.ndim - 1))[index] for each in vars(self).values()))


@torch.no_grad()
def played(model: ActorCritic, states: Tensor, luck: Tensor) -> dict[str, Tensor]:
    """Play episodes from their first states, (episodes, 4), and normal numbers, (moments, episodes, 2)."""
    seen, forces, costs = [], [], []
    for noise in luck:
        seen.append(states)
        forces.append(model.actor(states) + noise * model.log_spread.exp())
        states = after(states, forces[-1])
        costs.append(cost(states))
    to_come = model.critic(states).squeeze(-1)
    returns = []
    for paid in reversed(costs):
        to_come = DISCOUNT * to_come - (1 - DISCOUNT) * paid
        returns.append(to_come)
    all_seen, all_forces, all_returns = torch.stack(seen), torch.stack(forces), torch.stack(returns[::-1])
    advantages = all_returns - model.critic(all_seen).squeeze(-1)
    return {
        "inputs": all_seen,
        "labels": all_forces,
        "log_probability": model.log_probability(all_seen, all_forces),
        "advantages": (advantages - advantages.mean()) / (advantages.std() + 1e-6),
        "returns": all_returns,
    }


@register_kind("ppo_reach")
@dataclass(frozen=True, kw_only=True)
class PpoReach(Kind):
    """An actor and a critic that push a point to the origin; judged by what fixed episodes cost without noise."""

    family = "reinforcement"
    optimizer = "Adam"
    why = "clipped surrogate, value and entropy in one loss of either sign, with period four"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=2e-3, warm_up_steps=0, clip=0.5)

    def make(self, seed: int) -> Parts:
        model = ActorCritic()
        return Parts(model, torch.optim.Adam(model.parameters(), eps=1e-5), {"episodes": Memory()})

    def batch(self, rng: np.random.Generator, step: int) -> Episodes:
        rows, none = self.rows(step), torch.empty(0)
        first = rng.normal(size=(rows, 4)) * [1.0, 1.0, 0.3, 0.3]
        luck = rng.normal(size=(MOMENTS, rows, 2))
        return Episodes(torch.from_numpy(first).float(), torch.from_numpy(luck).float(), none, none, none)

    def experience(self, run: KindRun, batch: Episodes) -> Episodes:
        episodes: Memory = run.beside["episodes"]
        if run.step % EPOCHS == 1:
            assert isinstance(run.model, ActorCritic)
            episodes.load_state_dict(played(run.model, batch.inputs, batch.labels))
        return Episodes(**episodes.tensors)

    def loss(self, model: nn.Module, batch: Episodes) -> Tensor:
        assert isinstance(model, ActorCritic)
        ratio = (model.log_probability(batch.inputs, batch.labels) - batch.log_probability).exp()
        limited = ratio.clamp(1 - RATIO_LIMIT, 1 + RATIO_LIMIT)
        surrogate = -torch.minimum(ratio * batch.advantages, limited * batch.advantages).mean()
        value = functional.mse_loss(model.critic(batch.inputs).squeeze(-1), batch.returns)
        entropy = model.log_spread.sum() + 1.0 + math.log(2 * math.pi)
        return surrogate + VALUE_WEIGHT * value - ENTROPY_WEIGHT * entropy

    def held_out_loss(self, model: nn.Module, batch: Episodes) -> Tensor:
        assert isinstance(model, ActorCritic)
        states, paid = batch.inputs, []
        for _ in batch.labels:
            states = after(states, model.actor(states))
            paid.append(cost(states))
        return torch.stack(paid).mean()
