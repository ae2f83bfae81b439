"""Bounds on interventions, in a row and in all."""

from __future__ import annotations

from rmetric.monitor.repair import SkipUpdate


def test_the_limits_of_a_resumed_run_are_those_that_it_is_given() -> None:
    policy = SkipUpdate(max_interventions=1)
    assert policy.allows(1) and not policy.allows(3)
    resumed = SkipUpdate(max_interventions=3)
    resumed.load_state_dict(policy.state_dict())
    assert [resumed.allows(step) for step in (5, 7, 9)] == [True, True, False]


def test_interventions_in_a_row() -> None:
    policy = SkipUpdate(max_interventions=5, max_in_a_row=2)
    assert [policy.allows(step) for step in (1, 2, 3, 4, 6, 7, 9, 11)] == [
        True, True, False, False, True, True, True, False
    ]  # fmt: skip
