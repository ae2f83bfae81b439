from __future__ import annotations

import numpy as np
import pytest

from rmetric.faults import make_fault
from rmetric.simulation import RunSpec
from rmetric.study import run_batch
from tests.faults.common import MOE, disturbed, pair, undisturbed
from tests.helpers import records_of

EXPERTS = [("low", 1), ("medium", 2), ("high", 4)]


@pytest.mark.parametrize(("severity", "experts"), EXPERTS)
def test_fewer_parameters_are_left_for_good(severity: str, experts: int) -> None:
    excess = pair("EXPERT_FAILURE", severity, runs=16).relative_excess
    assert np.median(excess[:, -100:]) == pytest.approx(0.28 * experts / 8, rel=0.3)


@pytest.mark.parametrize(("severity", "experts"), EXPERTS)
def test_the_onset_costs_something_at_once(severity: str, experts: int) -> None:
    added = disturbed(make_fault("EXPERT_FAILURE", severity), runs=100).kick - undisturbed(runs=100).kick
    assert (added[:, 200] >= 0.03 * experts / 8 * 0.499).all()
    assert added[:, 200].mean() == pytest.approx(0.03 * experts / 8 * 1.5, rel=0.2)
    assert not added[:, 201:].any()


@pytest.mark.parametrize(("severity", "experts"), EXPERTS)
def test_the_log_names_the_experts_that_failed(severity: str, experts: int) -> None:
    (log,) = run_batch([RunSpec(architecture=MOE, fault="EXPERT_FAILURE", severity=severity, steps=600, onset=305)])
    failed = {record["step"]: record["failed_experts"] for record in records_of(log.content)}
    assert failed[300] == []
    assert failed[310] == list(range(experts))


def test_the_remaining_gradients_disagree_more() -> None:
    assert np.allclose(disturbed(make_fault("EXPERT_FAILURE", "high")).gradient_noise_factor[:, 200:], 1.5)
