"""Fitting scorers with scikit-learn: recipes, cross-validation over seeds, calibration. Deterministic, on one core.

``fit`` of a recipe gives a scorer with one output for two classes (log-odds of class 1), else one a class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmetric.risk.scorers import Linear, Trees, trees_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
FOLDS = 5
ABSENT = -20.0
"""Margin of a class of which there is no example: e⁻²⁰ to 1."""
TINY = 1e-9
"""Probabilities are kept this far from 0 and 1 before a logarithm is taken."""


@dataclass(frozen=True)
class LinearRecipe:
    """Logistic regression on standardised features, with an L2 penalty of strength 1 / C."""

    c: float

    @property
    def name(self) -> str:
        return f"logistic regression, C = {self.c:g}"

    def fit(self, features_NF: Floats, label_N: Ints, weight_N: Floats, classes: int) -> Linear:
        from sklearn.linear_model import LogisticRegression

        mean_F = np.average(features_NF, axis=0, weights=weight_N)
        spread_F = np.sqrt(np.average((features_NF - mean_F) ** 2, axis=0, weights=weight_N))
        scale_F = np.where(spread_F > TINY, spread_F, 1.0)
        known = np.unique(label_N)
        if len(known) < 2:
            return _constant(label_N, weight_N, classes, mean_F, scale_F)
        # A solver that goes to the very optimum: where one stops on the way depends on the processor.
        fitted = LogisticRegression(C=self.c, solver="newton-cholesky", tol=1e-10, max_iter=100).fit(
            (features_NF - mean_F) / scale_F, label_N, sample_weight=weight_N
        )
        weights_FK, bias_K = fitted.coef_.T, fitted.intercept_
        if classes > 2:
            if len(known) == 2:  # scikit-learn gives one margin for two classes
                weights_FK, bias_K = np.hstack([0.0 * weights_FK, weights_FK]), np.array([0.0, bias_K[0]])
            every_FK, every_K = np.zeros((len(mean_F), classes)), np.full(classes, ABSENT)
            every_FK[:, known], every_K[known] = weights_FK, bias_K
            weights_FK, bias_K = every_FK, every_K
        return Linear(mean_F, scale_F, np.ascontiguousarray(weights_FK), bias_K)


@dataclass(frozen=True)
class TreesRecipe:
    """Gradient-boosted small trees."""

    trees: int
    leaves: int
    learning_rate: float = 0.1
    bins: int = 64
    """Values of a feature that are told apart, at most 255."""

    @property
    def name(self) -> str:
        return f"{self.trees} boosted trees of {self.leaves} leaves"

    def fit(self, features_NF: Floats, label_N: Ints, weight_N: Floats, classes: int) -> Linear | Trees:
        from sklearn.ensemble import HistGradientBoostingClassifier

        known = np.unique(label_N)
        if len(known) < 2 or (classes > 2 and len(known) < classes):
            return LinearRecipe(0.1).fit(features_NF, label_N, weight_N, classes)  # too little to grow trees on
        fitted = HistGradientBoostingClassifier(
            learning_rate=self.learning_rate, max_iter=self.trees, max_leaf_nodes=self.leaves, min_samples_leaf=40,
            l2_regularization=10.0, max_bins=self.bins, early_stopping=False, random_state=0,
        ).fit(features_NF, label_N, sample_weight=weight_N)  # fmt: skip
        nodes = [tree.nodes for trees in fitted._predictors for tree in trees]
        scorer = trees_of(fitted._baseline_prediction.ravel().tolist(), [_plain_tree(tree) for tree in nodes])
        sample = features_NF[:: max(1, len(features_NF) // 100)]
        theirs = fitted.decision_function(sample).reshape(len(sample), -1)
        assert np.allclose(scorer.margins(sample), theirs), "scikit-learn's trees were not read right"
        return scorer


Recipe = LinearRecipe | TreesRecipe


def _plain_tree(nodes: NDArray[np.void]) -> list[float | list[float]]:
    """Nodes as :meth:`Trees.plain` writes them."""
    return [
        float(node["value"])
        if node["is_leaf"]
        else [int(node["feature_idx"]), float(node["num_threshold"]), int(node["left"]), int(node["right"])]
        for node in nodes
    ]


def _constant(label_N: Ints, weight_N: Floats, classes: int, mean_F: Floats, scale_F: Floats) -> Linear:
    """All examples are of one class: its share, with half an example of every other."""
    share = np.bincount(label_N, weights=weight_N, minlength=classes) + 0.5
    bias_K = np.log(share[1:] / share[0]) if classes == 2 else np.log(share)
    return Linear(mean_F, scale_F, np.zeros((len(mean_F), len(bias_K))), bias_K)


def folds(group_N: Ints) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Rows to fit to and rows to judge on, of each fold; no group is torn apart. There must be at least two."""
    from sklearn.model_selection import GroupKFold

    splitter = GroupKFold(min(FOLDS, len(np.unique(group_N))))
    found = []
    for _, judged in splitter.split(group_N[:, None], groups=group_N):
        held_out = np.zeros(len(group_N), bool)
        held_out[judged] = True
        found.append((~held_out, held_out))
    return found


def out_of_fold(
    recipe: Recipe, features_NF: Floats, label_N: Ints, weight_N: Floats, group_N: Ints, classes: int
) -> Floats:
    """Margins of each row by a scorer that was fitted to other groups, shape (n, 1) or (n, classes)."""
    margins = np.empty((len(label_N), 1 if classes == 2 else classes))
    for learned, judged in folds(group_N):
        scorer = recipe.fit(features_NF[learned], label_N[learned], weight_N[learned], classes)
        margins[judged] = scorer.margins(features_NF[judged])
    return margins


def platt(margin_N: Floats, label_N: Ints, weight_N: Floats) -> tuple[float, float]:
    """Slope (at least 0) and offset that make margins log-odds.

    **Source:** Platt 1999.
    """
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(label_N)) < 2:
        return 1.0, 0.0
    fitted = LogisticRegression(C=1e3, max_iter=1000).fit(margin_N[:, None], label_N, sample_weight=weight_N)
    slope, offset = float(fitted.coef_[0, 0]), float(fitted.intercept_[0])
    if slope > 0:
        return slope, offset
    share = float(np.average(label_N, weights=weight_N))  # the margins tell nothing: the base rate is all there is
    return 0.0, float(np.log(share / (1.0 - share)))


def temperature(margins_NM: Floats, label_N: Ints, weight_N: Floats) -> float:
    """Temperature with the lowest log loss, in [0.1, 10].

    **Source:** Guo, Pleiss, Sun, Weinberger 2017.
    """
    from scipy.optimize import minimize_scalar

    def loss(log_temperature: float) -> float:
        return choice_loss(margins_NM / np.exp(log_temperature), label_N, weight_N)

    limit = np.log(10.0)
    return float(np.exp(minimize_scalar(loss, bounds=(-limit, limit), method="bounded").x))


def binary_loss(probability_N: Floats, label_N: Ints, weight_N: Floats) -> float:
    """Mean log loss, nats."""
    p = np.clip(probability_N, TINY, 1.0 - TINY)
    return float(np.average(-np.where(label_N == 1, np.log(p), np.log1p(-p)), weights=weight_N))


def choice_loss(margins_NM: Floats, label_N: Ints, weight_N: Floats) -> float:
    """Mean log loss of the softmax of margins, nats."""
    top = margins_NM.max(axis=1)
    total = top + np.log(np.exp(margins_NM - top[:, None]).sum(axis=1))
    return float(np.average(total - margins_NM[np.arange(len(label_N)), label_N], weights=weight_N))


def best(losses: Sequence[tuple[float, Recipe]]) -> Recipe:
    """The recipe with the lowest loss; the first of them at a tie."""
    return min(losses, key=lambda pair: pair[0])[1]
