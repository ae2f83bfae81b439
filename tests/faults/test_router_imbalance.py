from __future__ import annotations

import pytest

from rmetric.simulation import RunSpec, run_batch
from tests.faults.common import MOE, pair
from tests.helpers import records_of

FACTORS = [("low", 0.7), ("medium", 0.75), ("high", 0.8)]


@pytest.mark.parametrize(("severity", "factor"), FACTORS)
def test_the_log_reports_the_factor_from_the_onset_on(severity: str, factor: float) -> None:
    (log,) = run_batch([RunSpec(architecture=MOE, fault="ROUTER_IMBALANCE", severity=severity, steps=600, onset=305)])
    reported = {record["step"]: record["router_imbalance_factor"] for record in records_of(log.content)}
    assert (reported[300], reported[310]) == (0.0, factor)


def test_the_busiest_expert_becomes_the_straggler_of_every_step() -> None:
    runs = pair("ROUTER_IMBALANCE", "high", steps=600)
    stall = (runs.faulty.step_time_s - runs.control.step_time_s)[:, 399:]
    assert stall[:, 0].max() < 0.1
    assert stall[:, 20:] == pytest.approx(1.5 * 0.8, abs=0.002)


def test_the_model_learns_around_it() -> None:
    assert pair("ROUTER_IMBALANCE", "high", steps=2500, runs=16).median_excess(2401, 2500) < 0.05
