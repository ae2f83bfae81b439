from __future__ import annotations

import numpy as np
import pytest

from rmetric.faults import make_fault
from rmetric.simulation import RunSpec
from rmetric.study import run_batch
from tests.faults.common import MOE, disturbed, pair
from tests.helpers import records_of

FACTORS = [("low", 0.7), ("medium", 0.75), ("high", 0.8)]


@pytest.mark.parametrize(("severity", "factor"), FACTORS)
def test_the_log_reports_the_factor_from_the_onset_on(severity: str, factor: float) -> None:
    (log,) = run_batch([RunSpec(architecture=MOE, fault="ROUTER_IMBALANCE", severity=severity, steps=600, onset=305)])
    reported = {record["step"]: record["router_imbalance_factor"] for record in records_of(log.content)}
    assert (reported[300], reported[310]) == (0.0, factor)


def test_the_busiest_expert_becomes_the_straggler_of_every_step() -> None:
    runs = pair("ROUTER_IMBALANCE", "high", steps=2500)
    stall = (runs.faulty.step_time_s - runs.control.step_time_s)[:, 399:]
    assert stall[:, 0].max() < 0.05
    assert (np.diff(stall[:, ::100], axis=1) > -0.002).all()
    assert stall[:, -1].min() > 0.8
    assert stall[:, -1].max() <= 1.5 * 0.8 + 0.001


def test_the_loss_rises_slowly_to_its_floor() -> None:
    excess = pair("ROUTER_IMBALANCE", "high", steps=2500, runs=16).relative_excess
    assert excess[:, 420].max() < 0.01
    assert np.median(excess[:, -1]) == pytest.approx(0.14 * 0.8, rel=0.1)
    reached = (excess[:, 399:] > 0.63 * 0.14 * 0.8).argmax(axis=1)
    assert 200 < np.median(reached) < 600


def test_routing_collapses_faster_at_higher_severity() -> None:
    halfway = []
    for severity, factor in FACTORS:
        noise = disturbed(make_fault("ROUTER_IMBALANCE", severity), steps=4000).gradient_noise_factor
        halfway.append(np.median((noise > 1.0 + factor / 4).argmax(axis=1)))
    assert halfway[0] > halfway[1] > halfway[2]
