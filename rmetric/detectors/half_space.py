"""Half-space trees over a whole run, compiled: river's trees, and the scores that river gives record by record.

Importing this module imports Numba (half a second).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from river.anomaly import HalfSpaceTrees

from rmetric.compiled import compiled


class Splits(NamedTuple):
    """Splits of the trees, of shape (trees, inner nodes); the children of node i are 2 i + 1 and 2 i + 2."""

    feature: NDArray[np.int64]
    limit: NDArray[np.float64]
    """Values below it go to the left."""
    window: int
    """Records that the trees count."""


@lru_cache(maxsize=8)
def splits_of(names: Sequence[str], trees: int, height: int, window: int, seed: int) -> Splits:
    """The trees that river draws for features of these names, each in [0, 1]."""
    model = HalfSpaceTrees(n_trees=trees, height=height, window_size=window, seed=seed)
    model.learn_one(dict.fromkeys(names, 0.0))  # they are drawn for the first record
    inner = 2**height - 1
    feature, limit = np.zeros((trees, inner), np.int64), np.zeros((trees, inner))
    for tree, root in enumerate(model.trees):
        nodes = [root]
        for place in range(inner):  # breadth first
            node = nodes[place]
            feature[tree, place], limit[tree, place] = names.index(node.feature), node.threshold
            nodes += node.children
    return Splits(feature, limit, window)


def scores(rows: NDArray[np.float64], splits: Splits, threshold: float) -> NDArray[np.float64]:
    """Scores of a run's features, shape (n, features): of each record before it is learned, as river gives them.

    NaN until the first window is full and for a row with NaN, infinite for one with infinity. A row that scores above
    the threshold is not learned.
    """
    found = np.where(np.isinf(rows).any(axis=1), np.inf, np.nan)
    return _scores(rows, np.isfinite(rows).all(axis=1), found, *splits, threshold)


@compiled
def _scores(rows, usable, result, feature, limit, window, threshold):
    inner = feature.shape[1]
    counted = np.zeros((len(feature), 2 * inner + 1), np.int64)
    counts = counted.copy()  # of the last whole window
    highest_sum = float(len(feature) * window * (2 * inner + 1))
    lowest, highest = np.full(rows.shape[1], np.inf), np.full(rows.shape[1], -np.inf)
    learned = 0
    for index in range(len(rows)):
        if not usable[index]:
            continue
        row = rows[index]
        if learned >= window:
            point, total = _scaled(row, lowest, highest), 0.0
            for tree in range(len(feature)):
                total += _mass(counts[tree], feature[tree], limit[tree], point, 0.1 * window)
            result[index] = 1 - total / highest_sum
        if result[index] > threshold:
            continue
        for column in range(len(row)):
            lowest[column], highest[column] = min(lowest[column], row[column]), max(highest[column], row[column])
        point = _scaled(row, lowest, highest)
        for tree in range(len(feature)):
            _count(counted[tree], feature[tree], limit[tree], point)
        learned += 1
        if learned % window == 0:
            counts, counted = counted, counts
            counted[:] = 0
    return result


@compiled
def _scaled(row, lowest, highest):
    """The row with what was seen of each feature as [0, 1]; 0 for one that never changed."""
    point = np.zeros(len(row))
    for index in range(len(row)):
        if highest[index] - lowest[index] != 0.0:
            point[index] = (row[index] - lowest[index]) / (highest[index] - lowest[index])
    return point


@compiled
def _child(node, feature, limit, point):
    return 2 * node + (1 if point[feature[node]] < limit[node] else 2)


@compiled
def _mass(counts, feature, limit, point, few):
    """Counts on the way from the root, each times 2 to the power of its depth; the way ends where few were counted."""
    node, weight, total = 0, 1, 0.0
    while True:
        total += counts[node] * weight
        if node >= len(feature) or counts[node] < few:
            return total
        node, weight = _child(node, feature, limit, point), 2 * weight


@compiled
def _count(counted, feature, limit, point):
    """Count a record in all nodes on its way."""
    node = 0
    while node < len(feature):
        counted[node] += 1
        node = _child(node, feature, limit, point)
    counted[node] += 1
