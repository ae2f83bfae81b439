from __future__ import annotations

import numpy as np
import pytest

from rmetric.faults import NEVER, make_fault
from tests.faults.common import disturbed, pair

SEVERITIES = [("low", 50.0, 0.01), ("medium", 150.0, 0.03), ("high", 250.0, 0.08)]


@pytest.mark.parametrize(("severity", "delay_ms", "events"), SEVERITIES)
def test_loss_and_gradients_are_untouched(severity: str, delay_ms: float, events: float) -> None:
    runs = pair("NETWORK_DEGRADATION", severity)
    for key in ("training_loss", "held_out", "validation_loss", "grad_norm", "sigma_sq", "update_rms", "learning_rate"):
        assert np.array_equal(getattr(runs.faulty, key), getattr(runs.control, key)), key


@pytest.mark.parametrize(("severity", "delay_ms", "events"), SEVERITIES)
def test_every_step_waits_for_eight_delayed_collectives(severity: str, delay_ms: float, events: float) -> None:
    runs = pair("NETWORK_DEGRADATION", severity)
    delay_s = (runs.faulty.step_time_s - runs.control.step_time_s)[:, 399:]
    assert delay_s.mean() == pytest.approx(8 * delay_ms / 1000.0, rel=0.03)
    assert delay_s.min() >= 0.5 * 8 * delay_ms / 1000.0 - 0.0011  # to the millisecond


@pytest.mark.parametrize(("severity", "delay_ms", "events"), SEVERITIES)
def test_the_link_reports_retransmissions(severity: str, delay_ms: float, events: float) -> None:
    state = disturbed(make_fault("NETWORK_DEGRADATION", severity, timeout_probability=0.0), runs=100)
    reported = [event for row in state.events for event in row]
    assert {(event.component, event.kind) for event in reported} == {("Network switch / cable", "correctable")}
    assert len(reported) == pytest.approx(events * 600 * 100, rel=0.12)


def test_a_time_out_takes_a_worker_away_once() -> None:
    state = disturbed(make_fault("NETWORK_DEGRADATION", "high"), runs=100, steps=2000)
    fatal = [[event for event in row if event.kind == "fatal"] for row in state.events]
    for row, events in enumerate(fatal):
        assert len(events) == (state.worker_lost_at[row] != NEVER)
        for event in events:
            assert (event.step, event.worker) == (state.worker_lost_at[row], state.lost_worker[row])
            assert event.component == "NCCL watchdog timeouts"
    waits = state.worker_lost_at[state.worker_lost_at != NEVER] - 200
    assert waits.mean() == pytest.approx(1 / 0.004, rel=0.25)


def test_at_low_severity_nobody_is_lost() -> None:
    state = disturbed(make_fault("NETWORK_DEGRADATION", "low"), runs=100, steps=2000)
    assert (state.worker_lost_at == NEVER).all()
