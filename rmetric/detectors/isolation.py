"""Isolation Forest for many short runs: scikit-learn's definition, its random numbers included, compiled.

scikit-learn spends a millisecond on each tree of a forest, whatever the number of samples; a study fits hundreds of
thousands of trees to a few dozen samples each. The scores are those of ``IsolationForest(random_state=0)`` to the bit
(``tests/detectors/test_isolation.py``). Importing this module imports Numba (half a second).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.random import sample_without_replacement

from rmetric.compiled import compiled

MOST_SAMPLES = 256
"""Samples of a tree, at most: scikit-learn's default, and the paper's."""
CONSTANT = np.float32(1e-7)
"""Range up to which scikit-learn takes a feature for constant."""
LARGEST_RANDOM = 2**31 - 1
LEAF = -1


class Forest(NamedTuple):
    """Isolation trees as arrays of shape (trees, nodes); node 0 is the root."""

    feature: NDArray[np.int64]
    """Feature that a node splits; :data:`LEAF` for a leaf."""
    limit: NDArray[np.float64]
    """Samples up to it go to the left."""
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    depth: NDArray[np.float64]
    """Of a leaf: its depth, and the mean depth of the tree that its samples would make if they were split on."""
    usual_depth: float
    """Mean depth of a tree that splits all samples."""


def fit(samples: NDArray[np.float64], trees: int) -> Forest:
    """Forest of so many trees for samples of shape (n, features), n at least 1, with finite values in single precision.

    **Source:** Liu, Ting, Zhou 2008; ``IsolationForest`` and ``ExtraTreeRegressor`` of scikit-learn 1.9.

    **Deviation:** scikit-learn regresses on a random target and would stop at a node where that has no variance; such a
    node does not come up.
    """
    count, features = samples.shape
    size = min(MOST_SAMPLES, count)
    lengths = _mean_depths(size)
    draws, seeds = _seeds(trees)
    chosen = np.array([_chosen(seed, count, size, features) for seed in draws] if count > size else [np.arange(size)])
    depth = math.ceil(math.log2(max(size, 2)))
    feature, limit, left, right, ends = _grow(samples.astype(np.float32), chosen, seeds, depth, lengths)
    return Forest(feature, limit, left, right, ends, float(lengths[size]))


def anomaly(forest: Forest, samples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Anomaly score of each sample, in (0, 1]: 2 to the power of minus its mean depth in units of the usual one."""
    depth = _depths(*forest[:5], samples.astype(np.float32))
    usual = len(forest.feature) * forest.usual_depth
    return 2.0 ** -(depth / usual if usual > 0.0 else np.ones_like(depth))


def _mean_depths(size: int) -> NDArray[np.float64]:
    """Mean depth of an isolation tree of 0, 1, … ``size`` samples: that of an unsuccessful search."""
    n = np.arange(size + 1, dtype=np.float64)
    lengths = np.zeros(size + 1)
    lengths[2:3] = 1.0
    lengths[3:] = 2.0 * (np.log(n[3:] - 1.0) + np.euler_gamma) - 2.0 * (n[3:] - 1.0) / n[3:]
    return lengths


@lru_cache(maxsize=8)
def _seeds(trees: int) -> tuple[list[int], NDArray[np.int64]]:
    """Seed of each tree's samples, and of its splits, as scikit-learn derives them from ``random_state=0``."""
    draws = np.random.RandomState(0).randint(LARGEST_RANDOM, size=trees).tolist()
    own = [np.random.RandomState(seed).randint(LARGEST_RANDOM) for seed in draws]
    return draws, np.array([np.random.RandomState(seed).randint(0, LARGEST_RANDOM) for seed in own])


def _chosen(seed: int, count: int, size: int, features: int) -> NDArray[np.int64]:
    """Samples of a tree."""
    random = np.random.RandomState(seed)
    sample_without_replacement(features, features, random_state=random)  # scikit-learn shuffles the features first
    return np.sort(sample_without_replacement(count, size, random_state=random))


@compiled
def _random(state):
    """Next state of scikit-learn's 32-bit xorshift generator (Marsaglia 2003)."""
    if state == 0:
        state = 1
    state = (state ^ (state << 13)) & 0xFFFFFFFF
    state ^= state >> 17
    return (state ^ (state << 5)) & 0xFFFFFFFF


@compiled
def _split(samples, own, start, end, order, known, state):
    """Draw a feature that varies in ``own[start:end]``, and a limit: (feature, limit, constant ones found, state).

    The first ``known`` features in ``order`` are known to be constant; constant ones that are found move behind them.
    The feature is :data:`LEAF` if none varies.
    """
    features = len(order)
    drawn = found = 0
    while features > known + found:
        state = _random(state)
        place = drawn + (state & 0x7FFFFFFF) % (features - found - drawn)
        if place < known:
            order[drawn], order[place] = order[place], order[drawn]
            drawn += 1
            continue
        place += found
        feature = order[place]
        lowest = highest = samples[own[start], feature]
        for index in range(start + 1, end):
            value = samples[own[index], feature]
            lowest, highest = min(lowest, value), max(highest, value)
        if highest <= lowest + CONSTANT:
            order[place], order[known + found] = order[known + found], feature
            found += 1
            continue
        order[features - 1], order[place] = order[place], order[features - 1]
        state = _random(state)
        low, high = np.float64(lowest), np.float64(highest)
        limit = (high - low) * (state & 0x7FFFFFFF) / LARGEST_RANDOM + low
        return feature, low if limit == high else limit, found, state
    return LEAF, 0.0, found, state


@compiled
def _part(samples, own, start, end, feature, limit):
    """Bring the samples up to the limit to the front of ``own[start:end]``; returns where the others begin."""
    while start < end:
        if samples[own[start], feature] <= limit:
            start += 1
        else:
            end -= 1
            own[start], own[end] = own[end], own[start]
    return end


@compiled
def _push(stack, place, entry):
    for column in range(len(entry)):
        stack[place, column] = entry[column]


@compiled
def _grow(samples, chosen, seeds, deepest, lengths):
    """Arrays of :class:`Forest`. Nodes are split in the order of scikit-learn, for they share a generator."""
    shape = (len(seeds), 2 * chosen.shape[1])
    feature, left, right = np.full(shape, LEAF), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    limit, depth = np.zeros(shape), np.zeros(shape)
    features = samples.shape[1]
    stack = np.empty((shape[1], 5), np.int64)  # node, first and last sample, depth, constant features
    for tree in range(len(seeds)):
        own = chosen[tree % len(chosen)].copy()
        order, constant = np.arange(features), np.zeros(features, np.int64)
        state, nodes, waiting = seeds[tree], 1, 1
        _push(stack, 0, (0, 0, len(own), 0, 0))
        while waiting:
            waiting -= 1
            node, start, end, level, known = stack[waiting]
            if level < deepest and end - start > 1:
                chosen_feature, bound, found, state = _split(samples, own, start, end, order, known, state)
                for place in range(known):
                    order[place] = constant[place]
                for place in range(known, known + found):
                    constant[place] = order[place]
                if chosen_feature != LEAF:
                    middle = _part(samples, own, start, end, chosen_feature, bound)
                    feature[tree, node], limit[tree, node] = chosen_feature, bound
                    left[tree, node], right[tree, node] = nodes, nodes + 1
                    _push(stack, waiting, (nodes + 1, middle, end, level + 1, known + found))
                    _push(stack, waiting + 1, (nodes, start, middle, level + 1, known + found))
                    nodes, waiting = nodes + 2, waiting + 2
            depth[tree, node] = level + 1.0 + lengths[end - start] - 1.0
    return feature, limit, left, right, depth


@compiled
def _depths(feature, limit, left, right, depth, samples):
    """Sum of the depths of the leaves that each sample falls into, shape (n,)."""
    total = np.zeros(len(samples))
    for tree in range(len(feature)):
        for index in range(len(samples)):
            node = 0
            while feature[tree, node] != LEAF:
                below = samples[index, feature[tree, node]] <= limit[tree, node]
                node = left[tree, node] if below else right[tree, node]
            total[index] += depth[tree, node]
    return total
