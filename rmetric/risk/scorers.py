"""Fitted functions as plain arrays, evaluated with NumPy alone; and the fault families that a diagnosis names.

Fitted functions as plain arrays, evaluated with NumPy alone: linear ones and small boosted trees.
Both map features of shape (n, F) to margins (log-odds, or log-probabilities up to a constant) of shape (n, K). A row's
margins do not depend on the rows beside it, bit for bit: sums run in one order, whatever n is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rmetric.records import Run

BENIGN, UNKNOWN = "benign", "unknown"
"""``benign``: nothing is broken; ``unknown``: the signals fit no family well enough. The second is an answer only."""

FAMILIES: dict[str, tuple[str, ...]] = {
    # The step is too long; everything else is in order: go back and lower the rate.
    "learning rate": ("LR_SPIKE", "LARGE_LR"),
    # The gradients are too long, at a learning rate that is as planned: skip steps, clip, look at the loss scaling.
    "gradients": ("GRADIENT_EXPLOSION",),
    # The text is at fault, not the machine: skip the batches and look at the loader.
    "data": ("DATA_CORRUPTION",),
    # Arithmetic that is wrong now and then: find and drain the device.
    "silent corruption": ("SILENT_DATA_CORRUPTION",),
    # The model computes another function than the one it was trained as: a wrong checkpoint, kernel or setting.
    "attention or norm": ("GQA_MISMATCH", "RMS_NORM_ERROR", "LOW_PRECISION_ATTENTION"),
    # The same in the parts that only a mixture of experts has.
    "experts": ("EXPERT_FAILURE", "ROUTER_IMBALANCE"),
    # Loss and gradients are healthy until a worker is gone: checkpoint and replace it.
    "node": ("NODE_FAILURE",),
    # Every step waits for the slowest link: look at the network.
    "network": ("NETWORK_DEGRADATION",),
    # A changed data mix, a learning-rate restart, one bad batch, a stray correctable event, or nothing at all.
    BENIGN: (),
}
"""Family → its faults, in the order of tables and figures."""

_FAMILY_OF = {fault: family for family, faults in FAMILIES.items() for fault in faults}


def family_of(fault: str) -> str:
    """Family of a fault by its registered name; ``unknown`` for one that has none (a plug-in's, a combination's).

    >>> family_of("LARGE_LR"), family_of("NONE"), family_of("LR_SPIKE+NODE_FAILURE")
    ('learning rate', 'benign', 'unknown')
    """
    return BENIGN if fault == "NONE" else _FAMILY_OF.get(fault, UNKNOWN)


def disturbance_step(run: Run) -> int | None:
    """Step at which a control run was disturbed on purpose; ``None`` if it was not."""
    disturbance = run.config.get("disturbance")
    step = disturbance.get("step") if isinstance(disturbance, dict) else None
    return int(step) if isinstance(step, int | float) else None


Floats = NDArray[np.float64]
ROWS_AT_ONCE = 4096
"""Keeps what is laid out in memory within tens of megabytes."""


class Scorer(Protocol):
    """Features to margins."""

    def margins(self, features_NF: Floats) -> Floats:
        """Shape (n, K)."""
        ...

    def plain(self) -> dict[str, Any]:
        """As JSON values; :func:`scorer_of` reads them back."""
        ...


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
    """The scorer that :meth:`Scorer.plain` described; raises ``ValueError`` or ``KeyError`` for anything else."""
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
