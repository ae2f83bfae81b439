"""Imitation of an expert who, every 200 steps, also says what to do where the learner got to by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.live.run import LiveRunConfig
from studies.zoo import gridworld
from studies.zoo.memory import Memory
from studies.zoo.training import Examples, Kind, KindRun, Parts, register_kind

ROUND, EPISODES, NEAR = 200, 24, 2
"""Steps between additions; episodes of one; the largest distance to a goal in the expert's own episodes."""


def expert(places: Tensor, goals: Tensor) -> Tensor:
    """Move of the expert: down or up first, then right or left."""
    down = goals // gridworld.SIDE - places // gridworld.SIDE
    right = goals % gridworld.SIDE - places % gridworld.SIDE
    sideways = torch.where(right > 0, 3, 2)
    return torch.where(down > 0, 1, torch.where(down < 0, 0, sideways))


@torch.no_grad()
def visited(policy: nn.Module, places: Tensor, goals: Tensor, luck: Tensor) -> Tensor:
    """Places and goals that a policy comes by, (2, visits); ``luck``: uniform numbers, (moves, episodes)."""
    seen = []
    for chance in luck:
        seen.append(torch.stack([places, goals])[:, places != goals])
        moves = policy(gridworld.observation(places, goals)).argmax(-1)
        places = torch.where(places == goals, places, gridworld.moved(places, moves, chance))
    return torch.cat(seen, dim=1)


@register_kind("dagger_rounds")
@dataclass(frozen=True, kw_only=True)
class DaggerRounds(Kind):
    """The first examples are of near goals only; those that are added are of all, and new to the learner.

    **Source:** Ross et al. 2011, A Reduction of Imitation Learning and Structured Prediction to No-Regret Online
    Learning. Held out is the exact number of steps to the goal. As it is drawn, a batch holds uniform numbers.
    """

    family = "reinforcement"
    optimizer = "Adam"
    why = "the data grow every 200 steps by what the learner does badly, and the loss jumps up"
    zoo = "zoo_3"
    config = LiveRunConfig(workers=1, rows=64, learning_rate=1e-3, warm_up_steps=0, clip=1.0)

    def make(self, seed: int) -> Parts:
        model = gridworld.network()
        places, goals = torch.meshgrid(*[torch.arange(gridworld.PLACES)] * 2, indexing="ij")
        down = (goals // gridworld.SIDE - places // gridworld.SIDE).abs()
        right = (goals % gridworld.SIDE - places % gridworld.SIDE).abs()
        near = (down + right > 0) & (down + right <= NEAR)
        memory = Memory(pairs=torch.stack([places[near], goals[near]]))
        return Parts(model, torch.optim.Adam(model.parameters()), {"memory": memory})

    def planned(self, step: int) -> str:
        return "" if step % ROUND else "the data grow"

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        return Examples(torch.from_numpy(rng.random(self.rows(step))), torch.empty(0))

    @torch.no_grad()
    def experience(self, run: KindRun, batch: Examples) -> Examples:
        memory = run.beside["memory"].tensors
        if run.step % ROUND == 0:
            rng = run.rng("dagger")
            luck = torch.from_numpy(rng.random((gridworld.HORIZON, EPISODES), dtype=np.float32))
            new = visited(run.model, *gridworld.starts(rng, EPISODES), luck)
            memory["pairs"] = torch.cat([memory["pairs"], new], dim=1)
        places, goals = memory["pairs"][:, (batch.inputs * memory["pairs"].shape[1]).long()]
        return Examples(gridworld.observation(places, goals), expert(places, goals))

    def held_out_loss(self, model: nn.Module, batch: Examples) -> Tensor:
        return gridworld.expected_steps(model(gridworld.all_observations()).softmax(-1))
