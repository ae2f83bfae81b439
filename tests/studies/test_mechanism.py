"""The mechanism study's findings, tables and figures, on logs in which everything is known."""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rmetric.evaluation.protocols import HEALTHY, Starts
from rmetric.reporting.table import to_markdown, to_screen
from studies.mechanism import figures as heat_map
from studies.mechanism.figures import band
from studies.mechanism.findings import (
    KINDS,
    NEVER,
    UNMEASURED,
    Case,
    MechanismResults,
    false_alarms,
    left_out_thresholds,
    training_departure,
)
from studies.mechanism.report import false_alarms_table, long_table, signature_table, write_results
from tests.helpers import strict_json
from tests.studies.mechanism_logs import FALLS, LEAVES, ONSET, STEPS, write_study

STRONG = Case("LARGE_LR", "tiny-llama", 16, "×30")
WEAK = Case("LARGE_LR", "tiny-llama", 16, "×2")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> MechanismResults:
    return MechanismResults.of(write_study(tmp_path_factory.mktemp("logs")), jobs=1, draws=50)


# --- Thresholds ------------------------------------------------------------------------------------------------------


def test_a_seed_has_no_part_in_its_own_threshold(results: MechanismResults) -> None:
    starts = results.starts["qk_entropy"]
    whole = left_out_thresholds(results.timeline, starts, results.repetition)
    louder = Starts(
        starts.run,
        starts.step,
        starts.zone,
        starts.low,
        np.where((results.repetition[starts.run] == 2) & (starts.zone == HEALTHY), starts.high + 100.0, starts.high),
    )
    moved = left_out_thresholds(results.timeline, louder, results.repetition)
    assert moved[2] == whole[2]
    assert moved[1] > whole[1] + 50.0
    assert false_alarms(louder, {1: 50.0, 2: math.inf, 3: 50.0}, results.repetition) == 0
    assert false_alarms(louder, dict.fromkeys((1, 2, 3), 50.0), results.repetition) >= 1


# --- Findings --------------------------------------------------------------------------------------------------------


def test_the_lead_is_the_departure_less_the_alarm(results: MechanismResults) -> None:
    assert list(results.faulty_cases) == [STRONG, WEAK]
    found = results.signature(STRONG, "qk_entropy", "default")
    assert (found.fired, found.seeds) == (3, 3)
    assert found.lead.value == LEAVES + 8 - FALLS  # the median seed
    assert (found.lead.low, found.lead.high) == (LEAVES - FALLS, LEAVES + 16 - FALLS)
    assert results.left(STRONG) == 3
    assert results.incubation(STRONG).value == LEAVES + 8 - ONSET


def test_where_the_loss_never_left_there_is_no_lead(results: MechanismResults) -> None:
    assert results.left(WEAK) == 0
    assert "did not leave" in results.signature(WEAK, "loss_spike", "default").lead.reason
    assert not results.incubation(WEAK).defined


def test_what_was_not_measured_is_not_judged(results: MechanismResults) -> None:
    assert results.signature(STRONG, "router_collapse", "default").seeds == 0
    rows = signature_table(results, "default").rows
    assert {row["router_collapse"] for row in rows} == {UNMEASURED}


def test_the_smoothed_training_loss_leaves_some_steps_after_the_loss(results: MechanismResults) -> None:
    for index in results.cases[STRONG]:
        late = 8 * (int(results.repetition[index]) - 1)
        departure = training_departure(results.runs[index], results.twin_of(index))
        assert departure is not None
        assert LEAVES + late < departure <= LEAVES + late + 3  # a twentieth of a nat each; 5 % of 2 nats are two
    for index in results.cases[WEAK]:
        assert training_departure(results.runs[index], results.twin_of(index)) is None


def test_an_alarm_before_the_onset_is_a_false_one_and_none_for_the_fault(results: MechanismResults) -> None:
    assert results.healthy_steps == 3 * STEPS
    found = results.false_alarms("qk_entropy", "default")
    assert found.episodes == 0 and found.steps == 3 * STEPS
    assert found.upper_bound == pytest.approx(1000 * 2.9957 / (3 * STEPS), rel=1e-3)
    index = results.cases[STRONG][0]
    scores = results.scores["qk_entropy"][index].copy()
    scores[ONSET - 6 :] = np.where(np.isnan(scores[ONSET - 6 :]), np.nan, 99.0)
    loud = MechanismResults(
        results.study,
        {"qk_entropy": [scores if at == index else own for at, own in enumerate(results.scores["qk_entropy"])]},
        draws=20,
    )
    assert loud.first_alarm(index, "qk_entropy", "default") is None  # it began before the onset and went on


# --- Tables, figures, files ------------------------------------------------------------------------------------------


def test_the_signature_table_reads_as_it_is_meant(results: MechanismResults) -> None:
    table = signature_table(results, "default")
    strong, weak, healthy = table.rows
    assert (healthy["fault"], healthy["held_out"], healthy["qk_entropy"]) == ("NONE", "0/3", "0/3")
    assert strong["qk_entropy"] == "3/3: +48 [40, 56]"
    assert strong["held_out"] == "3/3: +88 [80, 96]"
    assert weak["held_out"] == "0/3"
    assert weak["qk_entropy"] == "0/3"
    screen = to_screen(table, 100).splitlines()
    assert max(map(len, screen)) <= 100
    headings = [line.split()[:4] for line in screen if line.startswith("Fault")]
    assert len(headings) > 1 and all(heading == ["Fault", "Strength", "Model", "Batch"] for heading in headings)
    assert f"{NEVER}: the loss never left" in to_markdown(table)


def test_the_false_alarms_table_has_every_detector(results: MechanismResults) -> None:
    rows = {row["detector"]: row for row in false_alarms_table(results).rows}
    assert len(rows) == len(results.detectors)
    assert rows["QK update entropy"]["episodes_default"] == 0
    assert "router collapse" in rows and "judged no healthy step" in to_markdown(false_alarms_table(results))


def test_the_long_table_has_every_case_detector_and_kind(results: MechanismResults) -> None:
    rows = long_table(results).rows
    assert len(rows) == len(results.cases) * len(results.detectors) * len(KINDS)


def test_a_band_holds_the_median_and_the_range_of_the_seeds(results: MechanismResults) -> None:
    found = band(results, "qk_entropy", results.cases[STRONG], twins=False, every=5)
    assert found.since_onset[-1] == STEPS - ONSET
    assert (found.low <= found.middle).all() and (found.middle <= found.high).all()
    late = found.since_onset >= FALLS - ONSET
    assert found.high[late] == pytest.approx(0.05)
    assert found.low[~late].min() > 0.4
    assert not len(band(results, "router_similarity", results.cases[STRONG], twins=True, every=5).middle)


def test_a_band_ends_with_the_seed_whose_onset_is_the_latest(results: MechanismResults) -> None:
    late, broken_off, _ = results.cases[STRONG]
    moved = copy(results)
    moved.truths, moved.runs = list(results.truths), list(results.runs)
    moved.truths[late] = replace(moved.truths[late], onset=ONSET + 60)
    seen = moved.runs[broken_off].observations.rows(slice(0, ONSET + 100))
    moved.runs[broken_off] = replace(moved.runs[broken_off], observations=seen)
    for twins in (True, False):
        found = band(moved, "qk_entropy", results.cases[STRONG], twins=twins, every=5)
        assert found.since_onset[-1] == STEPS - ONSET - 60


@pytest.mark.slow
def test_everything_is_written_once_and_replaces_what_was_there(results: MechanismResults, tmp_path: Path) -> None:
    (tmp_path / "signals_of_an_earlier_study.png").write_text("old")
    tables = write_results(results, tmp_path, "python run_case_study.py --suite mechanism")
    assert [table.name for table in tables] == ["signature", "signature_default", "false_alarms"]
    names = {path.name for path in tmp_path.iterdir()}
    assert {"signals_large_lr.png", "signals_large_lr.pdf", f"{heat_map.NAME}.png", "captions.md"} <= names
    assert "signals_of_an_earlier_study.png" not in names
    summary = strict_json((tmp_path / "summary.json").read_bytes())
    assert summary["healthy_steps"] == 3 * STEPS
    assert summary["detectors"]["router_collapse"]["fitted_thresholds"] == dict.fromkeys("123")
    frame = pd.read_csv(tmp_path / "signature_long.csv")
    (lead,) = frame.query("detector == 'qk_entropy' and thresholds == 'default' and strength == '×30'")["lead"]
    assert lead == LEAVES + 8 - FALLS
