from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest
import torch

from rmetric.errors import UserError
from rmetric.faults import make_fault
from rmetric.live.run import LiveRun
from tests.live.faults.common import trained

FACTORS = [
    ("LR_SPIKE", "low", 5.0),
    ("LR_SPIKE", "medium", 15.0),
    ("LR_SPIKE", "high", 25.0),
    ("LARGE_LR", "low", 3.0),
    ("LARGE_LR", "medium", 6.0),
    ("LARGE_LR", "high", 12.0),
]


def _rate(run: LiveRun) -> float:
    return run.optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize(("fault", "severity", "factor"), FACTORS)
def test_the_learning_rate_is_multiplied_as_long_as_it_lasts(
    make_run: Callable[..., LiveRun], fault: str, severity: str, factor: float
) -> None:
    run = trained(make_run(learning_rate=1e-3, warm_up_steps=4), 2)
    assert _rate(run) == 0.5e-3
    with make_fault(fault, severity).inject(run):
        rates = [_rate(trained(run, 1)) for _ in range(3)]
    assert rates == [1e-3 * warm * factor for warm in (0.75, 1.0, 1.0)]
    assert _rate(trained(run, 1)) == 1e-3


def test_every_parameter_moves_that_many_times_as_far(make_run: Callable[..., LiveRun]) -> None:
    def in_float64(run: LiveRun) -> LiveRun:
        run.model.double()
        return run

    run = trained(in_float64(make_run()), 3)
    twin = in_float64(make_run()).load_state_dict(run.state_dict())
    before = {key: value.clone() for key, value in run.model.named_parameters()}
    with make_fault("LR_SPIKE", factor=7.0).inject(run):
        run.train_step()
    twin.train_step()
    calm = dict(twin.model.named_parameters())
    for key, value in run.model.named_parameters():
        assert torch.allclose(value - before[key], 7.0 * (calm[key] - before[key]), rtol=1e-9, atol=1e-15), key


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan")])
def test_a_factor_that_is_none_is_the_users_error(factor: float) -> None:
    with pytest.raises(UserError, match=f"LR_SPIKE has factor={factor}; choose one above 0"):
        make_fault("LR_SPIKE", factor=factor)


def test_a_large_one_multiplies_what_a_spike_does(make_run: Callable[..., LiveRun]) -> None:
    run = trained(make_run(learning_rate=1e-3), 2)
    with make_fault("LR_SPIKE+LARGE_LR", "high").inject(run):
        assert _rate(trained(run, 1)) == 1e-3 * (25.0 * 12.0)
    assert _rate(trained(run, 1)) == 1e-3


def test_a_large_one_goes_on_when_a_spike_within_it_ends(make_run: Callable[..., LiveRun]) -> None:
    run = trained(make_run(learning_rate=1e-3), 2)
    spike, large = ExitStack(), ExitStack()
    spike.enter_context(make_fault("LR_SPIKE", "high").inject(run))
    large.enter_context(make_fault("LARGE_LR", "high").inject(run))
    rates = []
    for part in (spike, large):
        part.close()
        rates.append(_rate(trained(run, 1)))
    assert rates == [1e-3 * 12.0, 1e-3]
