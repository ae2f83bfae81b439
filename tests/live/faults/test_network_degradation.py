from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch

from rmetric.faults import make_fault, network_degradation
from rmetric.live.run import LiveRun
from tests.live.faults.common import same_bits, trained
from tests.live.faults.test_node_failure import Told


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Seconds that the fault wanted to wait; nobody waits."""
    seconds: list[float] = []
    monkeypatch.setattr(network_degradation, "time", SimpleNamespace(sleep=seconds.append))
    yield seconds


def test_every_step_waits_for_its_collectives_and_only_while_it_lasts(
    make_run: Callable[..., LiveRun], slept: list[float]
) -> None:
    run = trained(make_run(), 2)
    with make_fault("NETWORK_DEGRADATION", "low").inject(run):
        trained(run, 30)
    assert len(slept) == 30
    shortest = 8 * 0.050 * 0.5
    assert min(slept) >= shortest
    assert len({*slept}) == 30  # jitter
    assert sum(slept) / 30 == pytest.approx(8 * 0.050, rel=0.3)
    trained(run, 2)
    assert len(slept) == 30
    assert not any(run.hooks.values())


def test_loss_and_gradients_are_those_of_the_twin_to_the_last_bit(
    make_run: Callable[..., LiveRun], slept: list[float]
) -> None:
    run, twin = make_run(), make_run()
    told = Told(run)
    with make_fault("NETWORK_DEGRADATION", "low", events_per_step=0.5).inject(run):
        for _ in range(12):
            assert torch.equal(run.train_step(), twin.train_step())
    assert same_bits(run.state_dict(), twin.state_dict())
    assert len(slept) == 12
    assert {event[1:] for event in told.events} == {("Network switch / cable", "correctable", told.events[0][3])}
    assert 2 <= len(told.events) <= 10


@pytest.mark.parametrize(("severity", "delay_s"), [("low", 0.05), ("medium", 0.15), ("high", 0.25)])
def test_events_and_delays_are_as_frequent_and_long_as_in_the_simulation(
    make_run: Callable[..., LiveRun], slept: list[float], severity: str, delay_s: float
) -> None:
    run = make_run()
    told = Told(run)
    fault = make_fault("NETWORK_DEGRADATION", severity, timeout_probability=0.0)
    with fault.inject(run):
        for _ in range(3000):
            run.step += 1
            for call in run.hooks["batch"]:
                call(None)
            for call in run.hooks["gradients"]:
                call()
    expected = fault.events_per_step * 3000
    assert abs(len(told.events) - expected) < 4 * math.sqrt(expected)
    assert sum(slept) / 3000 == pytest.approx(8 * delay_s, rel=0.05)


def test_a_time_out_of_the_watchdog_takes_a_worker_away_once(
    make_run: Callable[..., LiveRun], slept: list[float]
) -> None:
    run = make_run()
    told = Told(run)
    fault = make_fault("NETWORK_DEGRADATION", "high", timeout_probability=1.0, events_per_step=0.0)
    with fault.inject(run):
        trained(run, 3)
    assert [(event[0], *event[1:3]) for event in told.events] == [(1, "NCCL watchdog timeouts", "fatal")]
    assert run.worker_lost_step == 1
    assert run.active_workers == [1 - told.events[0][3]]
