"""A grid in which an agent looks for a goal: small enough for the exact cost of any policy."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

SIDE, MOVES, HORIZON = 5, 4, 12
PLACES = SIDE * SIDE
SEEN = 2 * (2 * SIDE - 1)
"""Length of an observation."""
SLIP = 0.1
"""Chance that a move is a random one."""
STEPS = ((-1, 0), (1, 0), (0, -1), (0, 1))


@cache
def neighbours() -> Tensor:
    """Place that a move leads to, (places, moves); a wall leaves the agent where it is."""
    rows, columns = np.divmod(np.arange(PLACES), SIDE)
    found = [(rows + down).clip(0, SIDE - 1) * SIDE + (columns + right).clip(0, SIDE - 1) for down, right in STEPS]
    return torch.from_numpy(np.stack(found, axis=1))


def observation(places: Tensor, goals: Tensor) -> Tensor:
    """What a policy sees: how far down and how far right the goal is, each one-hot; (..., :data:`SEEN`)."""
    down = goals // SIDE - places // SIDE
    right = goals % SIDE - places % SIDE
    return torch.cat([functional.one_hot(each + SIDE - 1, SEEN // 2) for each in (down, right)], dim=-1).float()


def starts(rng: np.random.Generator, episodes: int) -> tuple[Tensor, Tensor]:
    """Places and goals of as many episodes, never the same of both."""
    goals = rng.integers(0, PLACES, size=episodes)
    places = (goals + rng.integers(1, PLACES, size=episodes)) % PLACES
    return torch.from_numpy(places), torch.from_numpy(goals)


def moved(places: Tensor, moves: Tensor, chance: Tensor) -> Tensor:
    """Places after a move.

    Parameters
    ----------
    places, moves
        Integers, (episodes,).
    chance
        Uniform in [0, 1), (episodes,): below :data:`SLIP` the move is a random one.
    """
    random_moves = (chance / SLIP * MOVES).long().clamp(max=MOVES - 1)
    return neighbours()[places, torch.where(chance < SLIP, random_moves, moves)]


def drawn(probabilities: Tensor, chance: Tensor) -> Tensor:
    """Moves drawn from a policy by uniform numbers, (episodes,); ``probabilities``: (episodes, moves)."""
    return (chance[:, None] > probabilities.cumsum(1)).sum(1).clamp(max=MOVES - 1)


def network() -> nn.Sequential:
    """From an observation to a number for each move."""
    return nn.Sequential(nn.Linear(SEEN, 64), nn.Tanh(), nn.Linear(64, MOVES))


def expected_steps(policy: Tensor) -> Tensor:
    """Mean number of steps to the goal, at most the horizon, over all starts: exact, so without noise.

    ``policy``: probability of each move, (places, goals, moves).
    """
    kept = (1 - SLIP) * policy + SLIP / MOVES
    here, goal = torch.meshgrid(torch.arange(PLACES), torch.arange(PLACES), indexing="ij")
    to_go = torch.zeros(PLACES, PLACES)
    for _ in range(HORIZON):
        after = to_go[neighbours()]  # (places, moves, goals)
        to_go = (1 + torch.einsum("pgm,pmg->pg", kept, after)).masked_fill(here == goal, 0.0)
    return to_go[here != goal].mean()


def all_observations() -> Tensor:
    """What is seen at each place with each goal, (places, goals, :data:`SEEN`)."""
    return observation(*torch.meshgrid(torch.arange(PLACES), torch.arange(PLACES), indexing="ij"))
