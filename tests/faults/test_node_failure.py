from __future__ import annotations

import numpy as np
import pytest

from rmetric.faults import HardwareEvent, make_fault
from rmetric.simulation import RunSpec, run_batch
from tests.faults.common import disturbed, pair, undisturbed
from tests.helpers import lines_of


def _fatal(events: list[HardwareEvent]) -> list[HardwareEvent]:
    return [event for event in events if event.kind == "fatal"]


@pytest.mark.parametrize("severity", ["low", "medium", "high"])
def test_loss_and_gradients_never_show_anything(severity: str) -> None:
    runs = pair("NODE_FAILURE", severity)
    for key in ("training_loss", "held_out", "validation_loss", "grad_norm", "sigma_sq", "update_rms", "learning_rate"):
        assert np.array_equal(getattr(runs.faulty, key), getattr(runs.control, key)), key


def test_with_a_spare_the_job_stalls_once_and_goes_on() -> None:
    runs = pair("NODE_FAILURE", "low", steps=2500)
    stall = runs.faulty.step_time_s - runs.control.step_time_s
    long = stall > 200.0
    assert (long.sum(axis=1) == 1).all()
    assert np.allclose(stall[long], 240.0)
    # Once the spare has taken over, nothing ails any more.
    for row, at in enumerate(long.argmax(axis=1)):
        assert (stall[row, at + 1 :] == 0.0).all()
    assert runs.faulty.worker_lost_step == [None] * 8
    assert [outcome.kind for outcome in runs.outcomes] == ["recovered"] * 8


@pytest.mark.parametrize(("severity", "mean"), [("medium", 300.0), ("high", 60.0)])
def test_without_a_spare_the_worker_is_lost_after_the_incubation(severity: str, mean: float) -> None:
    state = disturbed(make_fault("NODE_FAILURE", severity), runs=300, steps=3000, onset=1)
    assert (state.worker_lost_at <= 3000).mean() > 0.99
    waits = state.worker_lost_at[state.worker_lost_at <= 3000] - 1
    assert waits.mean() == pytest.approx(mean, rel=0.12)
    # A gamma distribution of shape 2: its standard deviation is its mean over √2.
    assert waits.std() == pytest.approx(mean / np.sqrt(2), rel=0.2)


def test_the_fatal_event_comes_with_the_loss_and_nothing_after_it() -> None:
    state, healthy = disturbed(make_fault("NODE_FAILURE", "high"), runs=30), undisturbed(runs=30)
    for row, events in enumerate(state.events):
        (fatal,) = _fatal(events)
        assert (fatal.step, fatal.worker, fatal.component) == (
            state.worker_lost_at[row],
            state.lost_worker[row],
            "Faulty GPU",
        )
        assert all(event.step < fatal.step for event in events if event.kind == "correctable")
        assert (state.stall_s[row, fatal.step :] == healthy.stall_s[row, fatal.step :]).all()


def test_the_ailing_worker_reports_memory_errors_and_holds_up_steps_now_and_then() -> None:
    state = disturbed(make_fault("NODE_FAILURE", "medium", incubation_steps=1e5), runs=100, steps=1200)
    correctable = [event for events in state.events for event in events]
    assert {(event.component, event.kind) for event in correctable} == {("GPU HBM3 memory", "correctable")}
    assert len(correctable) == pytest.approx(0.05 * 1000 * 100, rel=0.1)
    assert all(len({event.worker for event in events}) == 1 for events in state.events)
    stalls = state.stall_s[:, 200:]
    assert (stalls > 0).mean() == pytest.approx(0.05, rel=0.1)
    assert stalls[stalls > 0].mean() == pytest.approx(4.0, rel=0.1)


def test_any_worker_can_be_the_one() -> None:
    lost = disturbed(make_fault("NODE_FAILURE", "high"), runs=200).lost_worker
    assert np.bincount(lost[lost >= 0], minlength=8).min() > 10


def test_the_log_ends_with_the_worker_lost_and_its_fatal_event_just_before() -> None:
    spec = RunSpec(architecture="llama-3-8b", fault="NODE_FAILURE", severity="high", seed=5, steps=1000, onset=300)
    (log,) = run_batch([spec])
    events = lines_of(log.content)
    end = events[-1]
    assert (end["event"], end["reason"]) == ("EXPERIMENT_FAILURE", "WORKER_LOST")
    (fatal,) = [event for event in events if event["event"] == "HARDWARE_EVENT" and event["kind"] == "fatal"]
    assert fatal["step"] == end["step"]
    last = [event for event in events if event["event"] == "METRICS"][-1]
    assert last["step"] == end["step"]
    assert last["active_workers"] == [worker for worker in range(8) if worker != fatal["worker"]]
    assert last["is_crashed"] is True
    assert last["is_nan"] is False
