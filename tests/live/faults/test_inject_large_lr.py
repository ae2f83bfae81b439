from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from rmetric.faults import make_fault
from rmetric.live.run import LiveRun
from tests.live.faults.common import same_bits, trained


def _rate(run: LiveRun) -> float:
    return run.optimizer.param_groups[0]["lr"]


@pytest.mark.parametrize(("severity", "factor"), [("low", 3.0), ("medium", 6.0), ("high", 12.0)])
def test_the_learning_rate_is_a_multiple_as_long_as_it_lasts(
    make_run: Callable[..., LiveRun], severity: str, factor: float
) -> None:
    run = trained(make_run(learning_rate=1e-3), 2)
    with make_fault("LARGE_LR", severity).inject(run):
        assert [_rate(trained(run, 1)) for _ in range(3)] == [1e-3 * factor] * 3
    assert _rate(trained(run, 1)) == 1e-3


def test_it_multiplies_what_a_spike_does(make_run: Callable[..., LiveRun]) -> None:
    run = trained(make_run(learning_rate=1e-3), 2)
    with make_fault("LR_SPIKE+LARGE_LR", "high").inject(run):
        assert _rate(trained(run, 1)) == 1e-3 * (25.0 * 12.0)
    assert _rate(trained(run, 1)) == 1e-3


def test_it_goes_on_when_a_spike_within_it_ends(make_run: Callable[..., LiveRun]) -> None:
    run = trained(make_run(learning_rate=1e-3), 2)
    spike, large = ExitStack(), ExitStack()
    spike.enter_context(make_fault("LR_SPIKE", "high").inject(run))
    large.enter_context(make_fault("LARGE_LR", "high").inject(run))
    rates = []
    for part in (spike, large):
        part.close()
        rates.append(_rate(trained(run, 1)))
    assert rates == [1e-3 * 12.0, 1e-3]


def test_the_twin_is_untouched(make_run: Callable[..., LiveRun], twin_of: Callable[..., LiveRun]) -> None:
    run = trained(make_run(), 2)
    twin = twin_of(run)
    with make_fault("LARGE_LR").inject(run):
        trained(run, 3)
        trained(twin, 3)
    assert same_bits(twin.state_dict(), trained(make_run(), 5).state_dict())
    assert not same_bits(run.state_dict(), twin.state_dict())
