"""Who judges a run, and how: every clause by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rmetric.evaluation.ground_truth import Outcome, excess, judge, judge_runs

STEPS = np.arange(1, 201)
TWIN = np.full(200, 2.0)


def raised(first: int, last: int = 200, by: float = 0.2) -> np.ndarray:
    """The twin's loss, raised from step ``first`` to step ``last``."""
    return TWIN + by * ((first <= STEPS) & (last >= STEPS))


def test_excess_that_holds_to_the_horizon_is_a_failure_at_its_first_step():
    assert judge(raised(120), TWIN, STEPS) == Outcome("failed", 120, "DIVERGED")


def test_five_per_cent_exactly_is_no_excess():
    assert not excess([2.1], [2.0]).any()
    assert excess([np.nextafter(2.1, 3.0)], [2.0]).all()


def test_excess_that_heals_is_a_recovery():
    assert judge(raised(120, 199), TWIN, STEPS) == Outcome("recovered")


def test_an_earlier_excess_that_healed_does_not_move_the_failure_step():
    held_out = np.maximum(raised(50, 60), raised(130))
    assert judge(held_out, TWIN, STEPS).failure_step == 130


@pytest.mark.parametrize(("first", "kind"), [(150, "failed"), (151, "censored"), (200, "censored")])
def test_an_excess_in_the_last_fifty_steps_is_undecided(first, kind):
    assert judge(raised(first), TWIN, STEPS).kind == kind


def test_a_definite_event_decides_a_late_excess():
    assert judge(raised(180), TWIN, STEPS, worker_lost_step=190) == Outcome("failed", 190, "WORKER_LOST")
    assert judge(raised(180), TWIN, STEPS, non_finite_step=195) == Outcome("failed", 195, "NAN_LOSS")


@pytest.mark.parametrize(
    ("broken", "lost", "step", "reason"),
    [
        (110, None, 110, "NAN_LOSS"),
        (None, 90, 90, "WORKER_LOST"),
        (130, 140, 120, "DIVERGED"),
        (120, 120, 120, "NAN_LOSS"),
    ],
)
def test_the_earliest_sign_is_the_failure(broken, lost, step, reason):
    outcome = judge(raised(120), TWIN, STEPS, non_finite_step=broken, worker_lost_step=lost)
    assert outcome == Outcome("failed", step, reason)


def test_non_finite_losses_are_an_excess():
    held_out = TWIN.copy()
    held_out[119:160] = np.nan
    held_out[160:] = np.inf
    assert judge(held_out, TWIN, STEPS) == Outcome("failed", 120, "DIVERGED")


def test_controls_are_clean():
    assert judge(TWIN, TWIN, STEPS, faulty=False) == Outcome("clean")


def test_a_twin_that_is_not_finite_is_refused():
    with pytest.raises(ValueError, match="twin"):
        excess([1.0], [np.nan])


def test_many_runs_are_judged_as_one_at_a_time():
    held_out = np.stack([raised(120), raised(120, 150), raised(180), TWIN])
    twins = np.broadcast_to(TWIN, held_out.shape)
    none = [None] * 4
    together = judge_runs(
        excess(held_out, twins), STEPS, non_finite_step=none, worker_lost_step=none, faulty=[True, True, True, False]
    )
    assert [outcome.kind for outcome in together] == ["failed", "recovered", "censored", "clean"]
    assert together[0] == judge(held_out[0], TWIN, STEPS)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="shape"):
        judge_runs(np.zeros((1, 3), bool), [1, 2], non_finite_step=[None], worker_lost_step=[None], faulty=[True])
