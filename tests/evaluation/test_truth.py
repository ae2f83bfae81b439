"""The truth about a run, as its log states it."""

from __future__ import annotations

import pytest

from rmetric.evaluation.truth import Truth, truth_of


def test_truth_of_each_kind_of_log(make_run):
    steps = range(10, 201, 10)
    assert truth_of(make_run(steps, onset=50, failure=120)) == Truth("failed", 50, 120, 200, "NAN_LOSS")
    assert truth_of(make_run(steps, onset=50)).kind == "recovered"
    assert truth_of(make_run(steps)).kind == "clean"
    assert truth_of(make_run(steps, onset=50, outcome="censored")).kind == "censored"
    assert truth_of(make_run(steps, onset=50, incomplete=True)).kind == "incomplete"
    assert truth_of(make_run(steps, onset=50, failure=120)).incubation == 70


def test_a_failure_before_the_fault_is_none_of_its(make_run):
    assert truth_of(make_run(range(10, 201, 10), onset=150, failure=120)) == Truth("failed", None, 120, 200, "NAN_LOSS")


def test_a_divergence_in_the_last_fifty_steps_is_censored_whatever_the_log_says(make_run):
    run = make_run(range(10, 601, 10), onset=448, failure=599, reason="DIVERGED", total_training_steps=600)
    assert truth_of(run).kind == "censored"
    earlier = make_run(range(10, 601, 10), onset=448, failure=550, reason="DIVERGED", total_training_steps=600)
    assert truth_of(earlier).kind == "failed"


def test_a_divergence_counts_where_nobody_knows_when_training_was_to_end(make_run):
    run = make_run(range(10, 551, 10), onset=448, failure=550, reason="DIVERGED")
    assert truth_of(run) == Truth("failed", 448, 550, 550, "DIVERGED")


def test_a_lost_injection_line_is_replaced_by_the_plan(make_run):
    run = make_run(range(10, 201, 10), onset=50, failure=120)
    run.events = run.events[1:]
    run.config["fault_injection"]["trigger_step"] = 50
    assert truth_of(run).onset == 50
    run.config["fault_injection"]["trigger_step"] = 5000
    assert truth_of(run).onset is None


@pytest.mark.parametrize("step", [float("inf"), -float("inf"), 1e29, float("nan"), 2.5, True, "200"])
def test_a_step_that_is_none_is_passed_by(make_run, step):
    run = make_run(range(10, 201, 10), onset=50, failure=120)
    run.events = run.events[1:]
    run.config |= {"total_training_steps": step}
    run.config["fault_injection"]["trigger_step"] = step
    run.terminal["step"] = step
    assert truth_of(run) == Truth("failed", None, 200, 200, run.terminal["reason"])
