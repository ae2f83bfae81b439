"""What a detector sees of failures, read from an evaluated study."""

from __future__ import annotations

import numpy as np
import pytest

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.studies import load_study
from rmetric.streams import RunStreams
from studies.cluster.job import CORRUPTION, Job
from studies.cluster.policies import Warnings, measured_warnings
from tests.evaluation.builders import build_log

NODE = "NODE_FAILURE"


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Evaluator:
    """Loss jumps at the onset, 305; some runs fail at 400, one before its next record. Odd repetitions fit."""
    folder = tmp_path_factory.mktemp("logs")
    kinds = ((NODE, 305, 400), (NODE, 305, 308), (CORRUPTION, 305, 400), ("LR_SPIKE", 305, 400), ("NONE", None, None))
    seed = 0
    for repetition in (1, 2, 4):
        for fault, onset, failure in kinds:
            seed += 1
            injected = {"type": fault, "severity": "high", "trigger_step": onset}
            build_log(folder, f"run_{seed}", onset=onset, failure=failure, seed=seed, repetition=repetition,
                      fault_injection=injected)  # fmt: skip
    return Evaluator.of(load_study(folder, 1), ["grad_norm", "loss_spike"], jobs=1, draws=20)


def test_leads_and_delays_are_those_of_the_score_half(evaluator: Evaluator) -> None:
    warnings = measured_warnings(evaluator, "grad_norm").warnings
    assert warnings is not None
    leads = warnings.seen_steps[NODE]
    assert sorted(leads[~np.isnan(leads)].tolist()) == [90.0, 90.0]  # warned at 310, failed at 400
    assert len(leads) == 4 and warnings.recall(NODE) == 0.5
    assert warnings.seen_steps[CORRUPTION].tolist() == [5.0, 5.0]  # corrupted at 305, warned at 310
    assert warnings.recall("NETWORK_DEGRADATION") == 0.0  # no such run
    assert "LR_SPIKE" not in warnings.seen_steps  # no component fails so
    counts = evaluator.budgeted("grad_norm").counts
    assert counts is not None
    half = evaluator.halves.score
    assert warnings.healthy_steps.sum() == counts.healthy_steps[half & counts.counted].sum()
    assert warnings.false_alarms.sum() == counts.fp[half & counts.counted].sum()


def test_a_detector_that_was_not_scored_says_so(evaluator: Evaluator) -> None:
    found = measured_warnings(evaluator)
    assert found.warnings is None
    assert found.reason == "r_metric_robust was not asked for"


def test_each_replicate_has_a_detector_of_its_own() -> None:
    seen = np.array([np.nan, 1.0, 2.0, 3.0])
    warnings = Warnings(
        seen_steps={NODE: seen, CORRUPTION: np.empty(0)},
        false_alarms=np.array([1.0, 0.0, 0.0]),
        healthy_steps=np.array([100.0, 100.0, 200.0]),
    )
    drawn = warnings.drawn(RunStreams((0,), 1), 4000)
    assert [*drawn.seen_steps] == [NODE]  # nothing can be drawn from no run
    assert drawn.seen_steps[NODE].shape == (4000, 4)
    recalls = (~np.isnan(drawn.seen_steps[NODE])).mean(axis=1)
    assert recalls.mean() == pytest.approx(warnings.recall(NODE), abs=0.01)
    assert recalls.std() == pytest.approx(np.sqrt(0.75 * 0.25 / 4), abs=0.01)
    assert (drawn.false_alarms_per_step == 0.0).mean() == pytest.approx((2 / 3) ** 3, abs=0.03)


def test_perfect_warnings_leave_time_for_a_checkpoint_and_no_more() -> None:
    job = Job(gpus=8, write_s=12.0, step_time_s=5.0)
    lead_s = Warnings.perfect(job).seen_steps[NODE][0] * job.step_time_s
    assert job.write_s < lead_s <= job.write_s + 2 * job.step_time_s
