"""The published zoos and bugs are as many and as varied as the card says."""

from __future__ import annotations

from collections import defaultdict

import pytest

from rmetric.evaluation.protocols import Timeline
from rmetric.evaluation.studies import Study, load_study
from rmetric.faults import parse_fault
from rmetric.faults.bugs import BUGS, BUGS_OF_PARTS
from tests.helpers import ROOT

DATA = ROOT / "data"
BUDGETED_STEPS = 200_000
"""Healthy steps in which one false alarm in 10,000 can be told from three."""


@pytest.fixture(scope="module")
def zoo() -> Study:
    return load_study(DATA / "zoo.parquet")


@pytest.fixture(scope="module")
def bugs() -> Study:
    return load_study(DATA / "bugs.parquet")


@pytest.mark.slow
def test_kinds_of_every_family_and_enough_healthy_steps(zoo: Study) -> None:
    assert len({run.model_type for run in zoo.runs}) >= 40
    assert len({run.config["family"] for run in zoo.runs}) == 9
    assert len({run.config["optimizer"] for run in zoo.runs}) >= 8
    assert Timeline.of(zoo.runs).healthy_steps.sum() >= BUDGETED_STEPS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["zoo_2", "zoo_3"])
def test_further_zoos_have_other_kinds_all_of_them_in_order_and_enough_healthy_steps(zoo: Study, name: str) -> None:
    further = load_study(DATA / f"{name}.parquet")
    kinds = {run.model_type for run in further.runs}
    assert len(kinds) >= 20
    assert kinds.isdisjoint(run.model_type for run in zoo.runs)
    assert {truth.kind for truth in further.truths} == {"clean"}
    assert Timeline.of(further.runs).healthy_steps.sum() >= 60_000


@pytest.mark.slow
def test_disturbances_are_benign_but_for_a_few_forks_that_no_score_counts(zoo: Study) -> None:
    clean = [truth.kind == "clean" for truth in zoo.truths]
    assert sum(clean) >= 0.95 * len(clean)
    assert all(run.disturbed_at for run, fine in zip(zoo.runs, clean, strict=True) if not fine)


@pytest.mark.slow
def test_every_bug_is_on_eight_kinds_and_half_of_them_fail_somewhere(bugs: Study) -> None:
    kinds, failed = defaultdict(set), set()
    for run, truth in zip(bugs.runs, bugs.truths, strict=True):
        kinds[run.fault].add(run.model_type)
        failed |= {run.fault} if truth.kind == "failed" else set()
    wanted = {parse_fault(bug).name for bug in BUGS}
    rare = {parse_fault(bug).name for bug in BUGS_OF_PARTS}
    assert {*kinds} - {"NONE"} == wanted
    assert min(len(kinds[bug]) for bug in wanted - rare) >= 8
    assert len(failed) >= len(wanted) / 2
