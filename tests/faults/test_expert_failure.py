from __future__ import annotations

import pytest

from rmetric.simulation import RunSpec, run_batch
from tests.faults.common import MOE, pair
from tests.helpers import records_of

EXPERTS = [("low", 1), ("medium", 2), ("high", 4)]


def test_the_onset_costs_something_and_most_of_it_is_won_back() -> None:
    for severity, _ in EXPERTS:
        runs = pair("EXPERT_FAILURE", severity, runs=16)
        assert runs.median_excess(400, 402) > 0.02
        assert runs.median_excess(1101, 1200) < 0.5 * runs.median_excess(400, 402)


def test_the_more_experts_fail_the_more_it_costs() -> None:
    costs = [pair("EXPERT_FAILURE", severity, runs=16).median_excess(400, 402) for severity, _ in EXPERTS]
    assert costs == sorted(costs)


@pytest.mark.parametrize(("severity", "experts"), EXPERTS)
def test_the_log_names_the_experts_that_failed(severity: str, experts: int) -> None:
    # A run that fails ends with its log: here at the onset, with the record of that step.
    (log,) = run_batch([RunSpec(architecture=MOE, fault="EXPERT_FAILURE", severity=severity, steps=600, onset=310)])
    failed = {record["step"]: record["failed_experts"] for record in records_of(log.content)}
    assert failed[300] == []
    assert failed[310] == list(range(experts))
