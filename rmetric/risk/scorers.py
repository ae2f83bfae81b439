"""Fitted functions as plain arrays, evaluated with NumPy alone: linear ones and small boosted trees.

``margins`` maps features of shape (n, F) to log-odds, or log-probabilities up to a constant, of shape (n, K). A row's
margins do not depend on the rows beside it, bit for bit: sums run in one order, whatever n is. ``plain`` gives JSON
values that :func:`scorer_of` reads back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
ROWS_AT_ONCE = 4096
"""Keeps what is laid out in memory within tens of megabytes."""


@dataclass(frozen=True)
class Linear:
    """Weights of standardised features.

    .. math:: m_k = b_k + \\sum_f w_{fk} (x_f - \\mu_f) / s_f
    """

    mean: Floats
    """Shape (F,)."""
    scale: Floats
    """Shape (F,), above 0."""
    weights: Floats
    """Shape (F, K)."""
    bias: Floats
    """Shape (K,)."""

    def margins(self, features_NF: Floats) -> Floats:
        standard_NF = (features_NF - self.mean) / self.scale
        result = np.empty((len(standard_NF), len(self.bias)))
        for start in range(0, len(result), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            # A running sum, and no matrix product: that adds in another order for one row than for many.
            products = np.cumsum(standard_NF[rows, :, None] * self.weights, axis=1)
            result[rows] = products[:, -1] + self.bias
        return result

    def plain(self) -> dict[str, Any]:
        return {
            "kind": "linear",
            "mean": self.mean.tolist(),
            "scale": self.scale.tolist(),
            "bias": self.bias.tolist(),
            "weights": self.weights.T.tolist(),
        }


@dataclass(frozen=True)
class Trees:
    """Boosted trees: the start value plus one leaf of each tree.

    A node goes left where its feature is at most its threshold; a leaf has itself on both sides. Arrays of shape
    (trees, nodes); tree t adds to output t mod K.
    """

    start: Floats
    """Shape (K,)."""
    feature: NDArray[np.int64]
    threshold: Floats
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: Floats
    depth: int

    def margins(self, features_NF: Floats) -> Floats:
        outputs = len(self.start)
        result = np.empty((len(features_NF), outputs))
        tree = np.arange(len(self.feature))
        for start in range(0, len(result), ROWS_AT_ONCE):
            part = features_NF[start : start + ROWS_AT_ONCE]
            row, at = np.arange(len(part))[:, None], np.zeros((len(part), len(tree)), np.int64)
            for _ in range(self.depth):
                low = part[row, self.feature[tree, at]] <= self.threshold[tree, at]
                at = np.where(low, self.left[tree, at], self.right[tree, at])
            added = self.value[tree, at].reshape(len(part), -1, outputs)
            result[start : start + ROWS_AT_ONCE] = self.start + np.cumsum(added, axis=1)[:, -1]
        return result

    def plain(self) -> dict[str, Any]:
        trees = []
        for feature, threshold, left, right, value in zip(
            self.feature, self.threshold, self.left, self.right, self.value, strict=True
        ):
            used = np.unique(np.concatenate([[0], left, right]))
            nodes = zip(feature, threshold, left, right, value, strict=True)
            trees.append([_node(index, *node) for index, node in enumerate(nodes) if index in used])
        return {"kind": "trees", "start": self.start.tolist(), "trees": trees}


def _node(index: int, feature: int, threshold: float, left: int, right: int, value: float) -> Any:
    """A leaf is its value; a branch is [feature, threshold, left, right]."""
    return float(value) if left == index else [int(feature), float(threshold), int(left), int(right)]


def scorer_of(plain: Mapping[str, Any]) -> Linear | Trees:
    """The scorer that ``plain`` described; raises ``ValueError`` or ``KeyError`` for anything else."""
    if plain["kind"] == "linear":
        mean, scale, bias = (np.array(plain[key], dtype=np.float64) for key in ("mean", "scale", "bias"))
        return Linear(mean, scale, np.array(plain["weights"], dtype=np.float64).T.copy(), bias)
    if plain["kind"] == "trees":
        return trees_of(plain["start"], plain["trees"])
    raise ValueError(f"unknown kind of scorer {plain['kind']!r}")


def trees_of(start: list[float], trees: list[list[Any]]) -> Trees:
    """Trees from lists of nodes: a leaf is its value, a branch is [feature, threshold, left, right]."""
    shape = (len(trees), max(map(len, trees)))
    feature, threshold, value = np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape)
    left, right = (np.tile(np.arange(shape[1]), (shape[0], 1)) for _ in range(2))
    for tree, nodes in enumerate(trees):
        for index, node in enumerate(nodes):
            if isinstance(node, list):
                feature[tree, index], threshold[tree, index], left[tree, index], right[tree, index] = node
            else:
                value[tree, index] = node
    depth = max(_depth(nodes, 0) for nodes in trees)
    return Trees(np.array(start, dtype=np.float64), feature, threshold, left, right, value, depth)


def _depth(nodes: list[Any], at: int) -> int:
    node = nodes[at]
    return 0 if not isinstance(node, list) else 1 + max(_depth(nodes, int(node[2])), _depth(nodes, int(node[3])))
