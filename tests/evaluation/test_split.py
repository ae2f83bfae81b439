"""Halves and folds by seed, forks never torn apart."""

from __future__ import annotations

from rmetric.evaluation.split import folds, groups, halves


def test_repetition_decides_where_there_is_one(make_run):
    runs = [make_run([1], seed=seed, repetition=repetition) for seed, repetition in ((10, 1), (11, 2), (12, 3))]
    both = halves(runs)
    assert both.fit.tolist() == [True, False, True]
    assert both.score.tolist() == [False, True, False]


def test_otherwise_the_seed_decides(make_run):
    both = halves([make_run([1], seed=3), make_run([1], seed=4), make_run([1])])
    assert both.fit.tolist() == [True, False, False]
    assert both.score.tolist() == [False, True, False]


def test_forks_of_one_run_stay_together(make_run):
    both = halves([make_run([1], seed=4, repetition=1), make_run([1], seed=4, repetition=2)])
    assert both.score.tolist() == [True, True]


def test_forks_share_a_group_and_others_do_not(make_run):
    runs = [make_run([1], seed=seed, backend="torch", model_type="tiny") for seed in (5, 5, 6)]
    assert groups([*runs, make_run([1]), make_run([1])]).tolist() == [0, 0, 1, 2, 3]


def test_groups_take_turns_in_the_folds(make_run):
    seeds = (5, 6, 5, 7, 8, 7)
    assert folds([make_run([1], seed=seed) for seed in seeds], 3).tolist() == [0, 1, 0, 2, 0, 2]


def test_a_run_without_a_seed_is_a_group_of_its_own(make_run):
    assert folds([make_run([1]), make_run([1]), make_run([1])], 2).tolist() == [0, 1, 0]
