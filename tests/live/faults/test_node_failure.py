from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import torch

from rmetric.faults import make_fault, node_failure
from rmetric.live.run import LiveRun, NoObserver
from tests.live.faults.common import same_bits, trained

Event = tuple[int, str, str, int]


class Told(NoObserver):
    """An observer that keeps the hardware events: (step, component, kind, worker)."""

    def __init__(self, run: LiveRun) -> None:
        self.run = run
        self.events: list[Event] = []
        run.observer = self

    def hardware_event(self, component: str, *, kind: str, worker: int = 0, details: str = "") -> None:
        self.events.append((self.run.step, component, kind, worker))


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Seconds that the fault wanted to wait; nobody waits."""
    seconds: list[float] = []
    monkeypatch.setattr(node_failure, "time", SimpleNamespace(sleep=seconds.append))
    yield seconds


def _dies(run: LiveRun) -> Event:
    (fatal,) = [event for event in run.observer.events if event[2] == "fatal"]
    return fatal


def test_the_worker_ails_and_then_its_share_of_every_batch_is_lost(
    make_run: Callable[..., LiveRun], slept: list[float]
) -> None:
    run = trained(make_run(seed=1), 3)
    told = Told(run)
    fault = make_fault("NODE_FAILURE", "high", incubation_steps=6.0, events_per_step=1.0, slow_step_probability=0.0)
    active: dict[int, list[int]] = {}
    with fault.inject(run):
        for _ in range(40):
            run.train_step()
            active[run.step] = list(run.active_workers)
    step, component, _, worker = _dies(run)
    assert component == "Faulty GPU"
    assert run.worker_lost_step == step
    assert [number for number, workers in active.items() if worker not in workers] == list(range(step, 44))
    ailing = [event for event in told.events if event[2] == "correctable"]
    assert ailing == [(at, "GPU HBM3 memory", "correctable", worker) for at in range(4, step)]
    assert step >= 6  # two steps of warning at least, as in the simulation
    assert slept == []


def test_until_then_loss_and_gradients_show_nothing_and_afterwards_the_batch_is_smaller(
    make_run: Callable[..., LiveRun], slept: list[float]
) -> None:
    run, twin = make_run(seed=1), make_run(seed=1)
    Told(run)
    fault = make_fault("NODE_FAILURE", "medium", incubation_steps=3.0, events_per_step=1.0)
    same: dict[int, bool] = {}
    with fault.inject(run):
        for _ in range(15):
            losses = [run.train_step(), twin.train_step()]
            same[run.step] = torch.equal(*losses) and same_bits(run.model.state_dict(), twin.model.state_dict())
    dies_at = _dies(run)[0]
    assert same == {step: step < dies_at for step in range(1, 16)}
    assert twin.active_workers == [0, 1]


def test_the_smaller_batch_is_the_mean_over_the_workers_that_are_left(
    make_run: Callable[..., LiveRun], slept: list[float]
) -> None:
    run, reduced = make_run(seed=1), make_run(seed=1)
    Told(run)
    with make_fault("NODE_FAILURE", "high", incubation_steps=0.0, events_per_step=0.0).inject(run):
        trained(run, 3)
    trained(reduced, 2)
    reduced.lose_worker(_dies(run)[3])
    trained(reduced, 1)
    assert same_bits(run.state_dict()["model"], reduced.state_dict()["model"])


def test_with_a_spare_the_job_stands_still_once_and_nobody_is_lost(
    make_run: Callable[..., LiveRun], slept: list[float]
) -> None:
    run, twin = make_run(seed=1), trained(make_run(seed=1), 25)
    told = Told(run)
    fault = make_fault("NODE_FAILURE", "low", incubation_steps=4.0, slow_step_probability=0.0)
    with fault.inject(run):
        trained(run, 25)
    assert slept == [240.0 * 0.02]
    assert [event[2] for event in told.events].count("fatal") == 1
    assert (run.worker_lost_step, run.active_workers) == (None, [0, 1])
    assert same_bits(run.state_dict(), twin.state_dict())


def test_the_ailing_worker_reports_and_slows_about_as_often_as_in_the_simulation(
    make_run: Callable[..., LiveRun], slept: list[float]
) -> None:
    run = make_run(rows=2, length=4, workers=1)
    told = Told(run)
    fault = make_fault("NODE_FAILURE", "medium", incubation_steps=1e6, events_per_step=0.2, slow_step_probability=0.3)
    with fault.inject(run):
        for _ in range(1000):
            run.step += 1
            for call in run.hooks["batch"]:
                call(None)
    assert len(told.events) == pytest.approx(200, rel=0.15)
    assert len(slept) == pytest.approx(300, rel=0.15)
    assert sum(slept) / len(slept) == pytest.approx(4.0 * 0.02, rel=0.15)


@pytest.mark.slow
def test_which_worker_and_when_depend_on_the_seed_alone(make_run: Callable[..., LiveRun], slept: list[float]) -> None:
    deaths = []
    for seed in (1, 1, 2, 3, 4):
        run = make_run(seed=seed, rows=4, workers=4, length=8)
        Told(run)
        with make_fault("NODE_FAILURE", "high", incubation_steps=5.0).inject(run):
            trained(run, 30)
        deaths.append(_dies(run))
    assert deaths[0] == deaths[1]
    assert len({death[0] for death in deaths}) > 2
    assert len({death[3] for death in deaths}) > 1


def test_afterwards_nothing_is_left_behind_but_the_loss(make_run: Callable[..., LiveRun], slept: list[float]) -> None:
    run = make_run(seed=1)
    told = Told(run)
    with make_fault("NODE_FAILURE", "high", incubation_steps=0.0, events_per_step=1.0).inject(run):
        trained(run, 4)
    seen = len(told.events)
    trained(run, 3)
    assert len(told.events) == seen
    assert not any(run.hooks.values())
    assert len(run.active_workers) == 1
