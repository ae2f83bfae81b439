"""REINFORCE in a grid: the loss is a surrogate whose sign changes and whose value says nothing of success."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo import gridworld
from studies.zoo.training import Kind, KindRun, Parts, register_kind


@dataclass(frozen=True)
class Episodes:
    """Starts and luck of some episodes; once they are played, what was seen, done and gained."""

    inputs: Tensor
    """Observations, (moves, episodes, ...); before they are played, (0, episodes)."""
    labels: Tensor
    """Moves made, (moves, episodes); before, places and goals, (2, episodes)."""
    weights: Tensor
    """Advantages, (moves, episodes); before, uniform numbers, (2, moves, episodes)."""

    def part(self, index: int, parts: int) -> Self:
        """One of equal parts."""
        return type(self)(*(each.chunk(parts, dim=-1)[index] for each in (self.inputs, self.labels, self.weights)))


@torch.no_grad()
def played(policy: nn.Module, episodes: Episodes) -> Episodes:
    """Let a policy play; the advantage is the steps to come, less their mean over the episodes."""
    places, goals = episodes.labels
    seen, made, running = [], [], []
    for of_policy, of_world in zip(*episodes.weights, strict=True):
        seen.append(gridworld.observation(places, goals))
        running.append(places != goals)
        made.append(gridworld.drawn(policy(seen[-1]).softmax(-1), of_policy))
        places = torch.where(running[-1], gridworld.moved(places, made[-1], of_world), places)
    under_way = torch.stack(running).float()
    to_come = -under_way.flip(0).cumsum(0).flip(0)
    advantages = (to_come - to_come.mean(1, keepdim=True)) * under_way
    return Episodes(torch.stack(seen), torch.stack(made), advantages)


@register_kind("reinforce_grid")
@dataclass(frozen=True, kw_only=True)
class ReinforceGrid(Kind):
    """Policy gradient with a mean as baseline; judged by the exact number of steps to the goal."""

    family = "reinforcement"
    optimizer = "Adam"
    why = "policy-gradient surrogate: sign changes, large noise, no fall"
    config = LiveRunConfig(workers=1, rows=32, learning_rate=1e-3, warm_up_steps=0, clip=5.0)

    def make(self, seed: int) -> Parts:
        model = gridworld.network()
        return Parts(model, torch.optim.Adam(model.parameters()))

    def batch(self, rng: np.random.Generator, step: int) -> Episodes:
        rows = self.config.rows
        luck = torch.from_numpy(rng.random((2, gridworld.HORIZON, rows), dtype=np.float32))
        return Episodes(torch.empty(0, rows), torch.stack(gridworld.starts(rng, rows)), luck)

    def experience(self, run: KindRun, batch: Episodes) -> Episodes:
        return played(run.model, batch)

    def loss(self, model: nn.Module, batch: Episodes) -> Tensor:
        chosen = model(batch.inputs).log_softmax(-1).gather(-1, batch.labels.unsqueeze(-1)).squeeze(-1)
        return -(chosen * batch.weights).mean()

    def held_out_loss(self, model: nn.Module, batch: Episodes) -> Tensor:
        return gridworld.expected_steps(model(gridworld.all_observations()).softmax(-1))
