"""What bugs of the schedule do to the learning rate."""

from __future__ import annotations

from typing import Any

import pytest

from rmetric.errors import UserError
from rmetric.faults import make_fault
from tests.live.faults.common import MAKE, same_bits, trained


def _rates(run: Any, steps: int) -> list[float]:
    return [trained(run, 1).optimizer.param_groups[0]["lr"] for _ in range(steps)]


@pytest.mark.parametrize("times", [2, 8])
def test_the_schedule_runs_too_fast(make_run: MAKE, times: int) -> None:
    run = trained(make_run("classifier"), 3)
    with make_fault("SCHEDULE_STEPPED_TWICE", times=times).inject(run):
        assert _rates(run, 3) == [run.rate_at(3 + times * step) for step in (1, 2, 3)]
    assert _rates(run, 1) == [run.rate_at(7)]


def test_a_constant_schedule_can_be_stepped_as_often_as_one_likes(make_run: MAKE) -> None:
    run = trained(make_run("tiny-llama"), 2)  # warmed up
    with pytest.raises(UserError, match="constant from here"), make_fault("SCHEDULE_STEPPED_TWICE").inject(run):
        pass
    with make_fault("SCHEDULE_STEPPED_TWICE").inject(run := make_run("tiny-llama", warm_up_steps=10)):
        assert _rates(run, 3) == [run.rate_at(2), run.rate_at(4), run.rate_at(6)]


def test_at_a_rate_of_zero_no_weight_changes(make_run: MAKE) -> None:
    run = trained(make_run("tiny-llama"), 2)
    before = {name: item.detach().clone() for name, item in run.model.named_parameters()}
    with make_fault("LEARNING_RATE_ZERO").inject(run):
        assert _rates(run, 2) == [0.0, 0.0]
    assert same_bits(dict(run.model.named_parameters()), before)
    assert _rates(run, 1) == [run.rate_at(5)]
