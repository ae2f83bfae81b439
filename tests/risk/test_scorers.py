"""Scorers: by hand, there and back as JSON, and rows that do not depend on each other."""

import json

import numpy as np
import pytest

from rmetric.risk.scorers import Linear, Trees, scorer_of, trees_of
from tests.risk.helpers import bits

TREE = [[1, 0.5, 1, 2], -1.0, [0, 2.0, 3, 4], 0.25, 4.0]
"""x1 ≤ 0.5: −1; else x0 ≤ 2: 0.25, else 4."""


def linear(outputs: int = 3, features: int = 45) -> Linear:
    rng = np.random.default_rng(0)
    return Linear(
        rng.normal(size=features), rng.uniform(0.5, 2.0, features), rng.normal(size=(features, outputs)),
        rng.normal(size=outputs),
    )  # fmt: skip


def test_linear_by_hand() -> None:
    ours = Linear(np.array([1.0, 0.0]), np.array([2.0, 1.0]), np.array([[3.0], [-1.0]]), np.array([0.5]))
    assert ours.margins(np.array([[5.0, 2.0]])).tolist() == [[3.0 * 2.0 - 2.0 + 0.5]]


def test_trees_by_hand() -> None:
    ours = trees_of([10.0], [TREE, [1.0]])
    rows = np.array([[9.0, 0.5], [2.0, 0.6], [2.1, 0.6]])
    assert ours.margins(rows).tolist() == [[10.0], [11.25], [15.0]]


def test_trees_take_turns_with_the_outputs() -> None:
    ours = trees_of([0.0, 0.0], [[1.0], [2.0], [4.0], [8.0]])
    assert ours.margins(np.zeros((1, 1))).tolist() == [[5.0, 10.0]]


@pytest.mark.parametrize("scorer", [linear(), linear(1), trees_of([0.5], [TREE] * 7), trees_of([0.1, 0.2], [TREE] * 8)])
def test_a_row_alone_gives_the_same_bits(scorer: Linear | Trees) -> None:
    rows = np.random.default_rng(1).normal(size=(5000, 45))
    many = scorer.margins(rows)
    alone = np.concatenate([scorer.margins(row[None]) for row in rows[::97]])
    assert bits(alone) == bits(many[::97])


@pytest.mark.parametrize("scorer", [linear(), trees_of([0.5], [TREE, [1.0]])])
def test_there_and_back(scorer: Linear | Trees) -> None:
    rows = np.random.default_rng(2).normal(size=(50, 45))
    again = scorer_of(json.loads(json.dumps(scorer.plain())))
    assert type(again) is type(scorer)
    assert bits(again.margins(rows)) == bits(scorer.margins(rows))


def test_a_stranger_is_refused() -> None:
    with pytest.raises(ValueError, match="'forest'"):
        scorer_of({"kind": "forest"})
