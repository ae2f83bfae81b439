"""An actor whose loss is what a critic thinks of it, with the sign turned: it follows the critic, not the task."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.live.run import LiveRunConfig
from studies.zoo.memory import Memory, follow
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind

WORLDS, CAPACITY, SPAN, EXPLORATION, DISCOUNT, FOLLOWED = 16, 4096, 30, 0.3, 0.95, 0.02
"""Carts; transitions kept; steps after which carts begin anew; noise on moves; of what is to come; of the target."""


def moved(states: Tensor, moves: Tensor) -> tuple[Tensor, Tensor]:
    """Place and speed, (B, 2), of carts that are pushed, (B, 1), and what it costs, (B,)."""
    place, speed = states.unbind(-1)
    push = moves.squeeze(-1)
    speed = 0.95 * speed + 0.2 * push
    after = torch.stack([place + 0.2 * speed, speed], dim=-1).clamp(-3.0, 3.0)
    return after, place.square() + 0.1 * speed.square() + 0.01 * push.square()


class ActorCritic(nn.Module):
    """The actor is trained by the loop, the critic beside it."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 1), nn.Tanh())
        self.critic = nn.Sequential(
            nn.Linear(3, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )
        self.critic.requires_grad_(False)

    def value(self, states: Tensor, moves: Tensor) -> Tensor:
        """What the critic expects, the negative cost of all that comes, (B,)."""
        value: Tensor = self.critic(torch.cat([states, moves], dim=-1)).squeeze(-1)
        return value


@register_kind("ddpg_actor")
@dataclass(frozen=True, kw_only=True)
class DdpgActor(Kind):
    """Carts that are to stop at the origin (Lillicrap et al. 2016). The loss rises as the critic learns how bad it is.

    Held out is the cost of a path of 30 steps, from many places. A batch is luck: where carts begin, noise on their
    moves, which transitions are learnt from.
    """

    family = "reinforcement"
    optimizer = "Adam"
    zoo = "zoo_2"
    why = "deterministic policy gradient: the loss is -Q, which rises by itself for hundreds of steps, then falls"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=1e-3, warm_up_steps=0, clip=1.0)

    def make(self, seed: int) -> Parts:
        model = ActorCritic()
        critic = torch.optim.Adam(model.critic.parameters(), lr=2.0 * self.config.learning_rate)
        memory = Memory(seen=torch.zeros(CAPACITY, 6), filled=torch.tensor(0), now=torch.zeros(WORLDS, 2))
        target = copy.deepcopy(model).requires_grad_(False)
        return Parts(model, torch.optim.Adam(model.actor.parameters()), {
            "critic": critic, "target": target, "memory": memory,
        })  # fmt: skip

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        if not step:
            states = rng.uniform(-2.0, 2.0, (self.rows(step), 2)).astype(np.float32)
            return Examples(torch.from_numpy(states), torch.from_numpy(states))
        luck = rng.uniform(-1.0, 1.0, (self.rows(step), 2)).astype(np.float32)
        return Examples(torch.from_numpy(luck), torch.from_numpy(rng.random(self.rows(step))))

    @torch.no_grad()
    def experience(self, run: KindRun, batch: Examples) -> Examples:
        """States that were seen, and the critic one step further."""
        model: Any = run.model
        memory = run.beside["memory"].tensors
        if run.step % SPAN == 1:
            memory["now"] = 2.0 * batch.inputs[:WORLDS]
        now = memory["now"]
        noise = torch.from_numpy(run.rng("exploration").normal(0.0, EXPLORATION, (WORLDS, 1)).astype(np.float32))
        moves = (model.actor(now) + noise).clamp(-1.0, 1.0)
        after, cost = moved(now, moves)
        at = (memory["filled"] + torch.arange(WORLDS)) % CAPACITY
        memory["seen"][at] = torch.cat([now, moves, cost[:, None], after], dim=1)
        memory["filled"], memory["now"] = memory["filled"] + WORLDS, after
        seen = memory["seen"][(batch.labels * memory["filled"].clamp(max=CAPACITY)).long()]
        states, done, costs, later = seen.split([2, 1, 1, 2], dim=1)
        target = run.beside["target"]
        wanted = DISCOUNT * target.value(later, target.actor(later)) - costs.squeeze(1)
        self._learn(run, states, done, wanted)
        follow(target, model, FOLLOWED)
        return Examples(states, costs)

    @torch.enable_grad()
    def _learn(self, run: KindRun, states: Tensor, moves: Tensor, wanted: Tensor) -> None:
        """One step of the critic."""
        model: Any = run.model
        optimizer = run.beside["critic"]
        model.critic.requires_grad_(True)
        functional.mse_loss(model.value(states, moves), wanted).backward()
        optimizer.step()
        optimizer.zero_grad()
        model.critic.requires_grad_(False)

    def loss(self, model: Any, batch: Examples) -> Tensor:
        return -model.value(batch.inputs, model.actor(batch.inputs)).mean()

    def held_out_loss(self, model: Any, batch: Examples) -> Tensor:
        states, total = batch.inputs, torch.tensor(0.0)
        for _ in range(SPAN):
            states, cost = moved(states, model.actor(states))
            total = total + cost.mean()
        return total
