"""Gridworld of the zoo: its exact cost against episodes that are played."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")


from studies.zoo import gridworld  # noqa: E402
from studies.zoo.kinds.reinforce_grid import ReinforceGrid, played  # noqa: E402


def test_the_exact_number_of_steps_to_the_goal_is_the_mean_over_played_episodes() -> None:
    torch.manual_seed(0)
    policy = gridworld.network()
    with torch.no_grad():
        exact = gridworld.expected_steps(policy(gridworld.all_observations()).softmax(-1))
    kind, counts = ReinforceGrid(), []
    for seed in range(100):
        episodes = played(policy, kind.batch(np.random.default_rng(seed), 1))
        down, right = (each.argmax(-1) - (gridworld.SIDE - 1) for each in episodes.inputs.chunk(2, dim=-1))
        counts += ((down != 0) | (right != 0)).sum(0).tolist()
    error = np.std(counts) / np.sqrt(len(counts))
    assert float(exact) == pytest.approx(np.mean(counts), abs=4 * error)
    assert error < 0.1


def test_a_policy_that_never_moves_towards_the_goal_takes_the_whole_horizon_and_a_good_one_less() -> None:
    down, right = (each.argmax(-1) - (gridworld.SIDE - 1) for each in gridworld.all_observations().chunk(2, dim=-1))
    first_down = torch.where(down != 0, (down > 0).long(), 2 + (right > 0).long())
    towards = torch.nn.functional.one_hot(first_down, gridworld.MOVES).float()
    assert 3.3 < float(gridworld.expected_steps(towards)) < 4.2  # 10/3 on average without slips
    assert float(gridworld.expected_steps(towards.flip(-1)[..., [1, 0, 3, 2]])) > 10.0
