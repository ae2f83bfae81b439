"""Learning: scikit-learn's numbers are read right, seeds are never torn apart, calibration does what it says."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from rmetric.risk.parameters import sigmoid, softmax
from studies.risk.recipes import (
    ABSENT,
    LinearRecipe,
    Recipe,
    TreesRecipe,
    choice_loss,
    folds,
    out_of_fold,
    platt,
    temperature,
)

_rng = np.random.default_rng(0)
X = _rng.normal(size=(600, 4))
Y = (X[:, 0] * X[:, 1] + 0.3 * _rng.normal(size=600) > 0).astype(np.int64)
W = _rng.uniform(0.5, 2.0, 600)
GROUP = np.arange(600) % 7


def test_linear_margins_are_those_of_scikit_learn() -> None:
    ours = LinearRecipe(0.5).fit(X, Y, W, 2)
    theirs = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit((X - ours.mean) / ours.scale, Y, sample_weight=W)
    assert ours.margins(X)[:, 0] == pytest.approx(theirs.decision_function((X - ours.mean) / ours.scale))


def test_tree_margins_are_those_of_scikit_learn() -> None:
    ours = TreesRecipe(12, 5).fit(X, Y, W, 2)
    theirs = HistGradientBoostingClassifier(
        learning_rate=0.1, max_iter=12, max_leaf_nodes=5, min_samples_leaf=40, l2_regularization=10.0, max_bins=64,
        early_stopping=False,
    ).fit(X, Y, sample_weight=W)  # fmt: skip
    assert ours.margins(X)[:, 0] == pytest.approx(theirs.decision_function(X))


@pytest.mark.parametrize("recipe", [LinearRecipe(0.1), TreesRecipe(5, 4)])
def test_one_class_alone_gives_its_share(recipe: Recipe) -> None:
    margin = recipe.fit(X, np.zeros(600, np.int64), np.ones(600), 2).margins(X)
    assert sigmoid(margin[:, 0]) == pytest.approx(np.full(600, 0.5 / 601.0))


def test_a_class_without_an_example_is_all_but_ruled_out() -> None:
    label = np.where(Y == 1, 3, 0)
    margin = LinearRecipe(0.1).fit(X, label, W, 5).margins(X)
    assert margin.shape == (600, 5)
    assert (margin[:, [1, 2, 4]] == ABSENT).all()
    assert (margin[:, 3] > margin[:, 0]).mean() == pytest.approx(Y.mean(), abs=0.5)


def test_no_group_is_on_both_sides() -> None:
    seen = np.zeros(600, int)
    for learned, judged in folds(GROUP):
        assert not {*GROUP[learned].tolist()} & {*GROUP[judged].tolist()}
        assert (learned ^ judged).all()
        seen += judged
    assert (seen == 1).all()


def test_margins_out_of_fold_have_not_seen_their_label() -> None:
    rng = np.random.default_rng(1)
    label = (rng.random(600) < 0.5).astype(np.int64)  # pure noise: nothing can be known of it
    margin = out_of_fold(TreesRecipe(20, 8), X, label, np.ones(600), GROUP, 2)[:, 0]
    fitted = TreesRecipe(20, 8).fit(X, label, np.ones(600), 2).margins(X)[:, 0]
    assert ((fitted > 0) == label).mean() > 0.6
    assert ((margin > 0) == label).mean() < 0.58


def test_platt_finds_the_line() -> None:
    rng = np.random.default_rng(1)
    margin = rng.normal(size=20_000)
    label = (rng.random(20_000) < sigmoid(0.5 * margin - 1.0)).astype(np.int64)
    assert platt(margin, label, np.ones(20_000)) == pytest.approx((0.5, -1.0), abs=0.06)


def test_platt_turns_nothing_upside_down() -> None:
    rng = np.random.default_rng(1)
    margin = rng.normal(size=2000)
    label = (margin < 0).astype(np.int64)
    slope, offset = platt(margin, label, np.ones(2000))
    assert slope == 0.0
    assert sigmoid(np.array([offset]))[0] == pytest.approx(label.mean())


def test_temperature_softens_what_was_too_sure() -> None:
    rng = np.random.default_rng(1)
    margin = rng.normal(size=(5000, 3))
    drawn = softmax(margin).cumsum(axis=1) > rng.random((5000, 1))
    label = drawn.argmax(axis=1)
    assert temperature(4.0 * margin, label, np.ones(5000)) == pytest.approx(4.0, rel=0.1)


def test_choice_loss_by_hand() -> None:
    assert choice_loss(np.log([[0.25, 0.75]]), np.array([1]), np.ones(1)) == pytest.approx(-np.log(0.75))
