"""Moments: what is counted once, what is known, which alerts are asked about."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rmetric.evaluation.studies import Study
from rmetric.records import Run
from studies.risk.records import alert_records, all_records, default_detector, feature_tables
from tests.evaluation.builders import build_run

SHARED = {"seed": 5, "backend": "torch", "model_type": "tiny", "total_training_steps": 200}


def study_of(*runs: Run) -> Study:
    return Study(Path("made"), list(runs))


def tables(study: Study) -> dict[int, np.ndarray]:
    return dict(feature_tables(study, np.ones(len(study.runs), bool), jobs=1))


def run(steps: Sequence[int] = range(1, 201), **changes: Any) -> Run:
    return build_run(list(steps), **{**SHARED, **changes})


def test_shared_healthy_records_stand_once_and_none_after_the_failure() -> None:
    study = study_of(run(), run(onset=100, failure=150), run(onset=80))
    records = all_records(study, tables(study))
    assert records.step[records.run == 0].tolist() == list(range(1, 201))
    assert records.step[records.run == 1].tolist() == list(range(100, 150))
    assert records.step[records.run == 2].tolist() == list(range(80, 201))
    assert records.fault_on.tolist() == (records.run > 0).tolist()
    assert {*records.group.tolist()} == {0}


def test_what_is_known_depends_on_the_clock_alone() -> None:
    study = study_of(run(onset=100, failure=140), run(seed=6))
    records = all_records(study, tables(study))
    assert records.step[records.known_within(10)].max() == 140  # 200 − 50 undecided − 10
    failing = records.run == 0
    assert records.step[failing & records.fails_within(10)].min() == 130
    assert not records.fails_within(1000)[~failing].any()
    assert (records.heals == ~failing).all()


def test_incomplete_runs_and_those_without_a_table_are_left_out() -> None:
    study = study_of(run(incomplete=True), run(seed=6), run(seed=7))
    known = tables(study)
    del known[2]
    assert {*all_records(study, known).run.tolist()} == {1}


def test_a_disturbed_control_run_counts_from_the_disturbance_on() -> None:
    study = study_of(run(), run(disturbance={"type": "bad_batch", "step": 120}))
    records = all_records(study, tables(study))
    assert records.step[records.run == 1].tolist() == list(range(120, 201))
    assert not records.fault_on.any()
    assert {*records.family.tolist()} == {"benign"}


def test_the_first_alert_from_the_onset_on_is_asked_about() -> None:
    study = study_of(run(onset=100, failure=150), run(onset=100, failure=150, seed=6), run(seed=7))
    alerts = {0: [40, 110, 130], 1: [40, 150], 2: [60, 190]}
    records = alert_records(study, tables(study), alerts, after=(0, 5, 20))
    assert list(zip(records.run.tolist(), records.step.tolist(), records.after.tolist(), strict=True)) == [
        (0, 110, 0), (0, 115, 5), (0, 130, 20), (2, 60, 0), (2, 65, 5), (2, 80, 20), (2, 190, 0), (2, 195, 5),
    ]  # fmt: skip
    assert records.family[0] == "learning rate"


def test_nothing_is_asked_at_the_failure_or_after_it() -> None:
    study = study_of(run(onset=100, failure=115))
    records = alert_records(study, tables(study), {0: [110]}, after=(0, 4, 5, 20))
    assert records.after.tolist() == [0, 4]


def test_at_a_coarse_cadence_the_last_record_is_taken() -> None:
    study = study_of(run(range(10, 201, 10), onset=95))
    records = alert_records(study, tables(study), {0: [100]}, after=(0, 5, 20))
    assert records.step.tolist() == [100, 100, 120]


def test_the_default_detector_is_a_causal_one() -> None:
    assert default_detector().causal


def test_no_alert_gives_no_record() -> None:
    study = study_of(run())
    assert len(alert_records(study, tables(study), {})) == 0
