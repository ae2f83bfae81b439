"""Tables 17 and 17b, and Figure 9: what they say, with and without a detector and a campaign."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rmetric.detectors import ROBUST
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.scores import Score
from rmetric.evaluation.studies import load_study
from rmetric.reporting.table import Table, to_csv, to_markdown
from studies.catalogue import Inputs
from studies.cluster import figure as picture
from studies.cluster import report as overhead_ratio
from studies.cluster.job import Job
from studies.cluster.policies import (
    BOUND,
    CHECKPOINTS,
    WITH_REPAIR,
    WITH_WARNINGS,
    MeasuredWarnings,
    RepairEffect,
    Warnings,
)
from studies.live_results import LiveResults
from studies.paper.figures import draw_figures
from studies.paper.tables import build_tables
from tests.evaluation.builders import build_logs
from tests.studies.test_figures import assert_texts_are_clear

CAMPAIGN = LiveResults(corruption={"repaired_share": 0.5, "repair_overhead_pct": 0.25})


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Evaluator:
    folder = build_logs(tmp_path_factory.mktemp("study") / "logs", backend="torch")
    return Evaluator.of(load_study(folder, jobs=1), ["r_metric", ROBUST], jobs=1, draws=20)


@pytest.fixture(scope="module")
def tables(evaluator: Evaluator) -> list[Table]:
    return build_tables(Inputs({"real": evaluator}, live=CAMPAIGN), ["17"])


def scores(table: Table, key: str) -> list[Score]:
    return [cell for row in table.rows if isinstance(cell := row[key], Score)]


@pytest.mark.slow
def test_every_size_has_every_policy(tables: list[Table]) -> None:
    pairs = [(row["gpus"], row["policy"]) for row in tables[0].rows]
    policies = (CHECKPOINTS, WITH_WARNINGS, WITH_REPAIR, BOUND)
    assert pairs == [(gpus, policy) for gpus in (8, 64, 512, 4096, 16_384) for policy in policies]
    tors = scores(tables[0], "tor")
    assert all(0.0 < tor.low <= tor.value <= tor.high <= 1.0 for tor in tors)
    alone = [tor.value for tor in tors[::4]]
    assert alone == sorted(alone, reverse=True)


@pytest.mark.slow
def test_money_and_hours_are_those_of_the_ratio(tables: list[Table]) -> None:
    for row in tables[0].rows:
        tor, hours, usd = row["tor"], row["lost_gpu_hours"], row["lost_usd"]
        assert isinstance(tor, Score) and isinstance(hours, Score) and isinstance(usd, Score)
        assert hours.value == pytest.approx((1.0 - tor.value) * 24.0 * row["gpus"])  # type: ignore[operator]
        assert usd.value == pytest.approx(2.5 * hours.value)
        assert usd.low == pytest.approx(2.5 * hours.low)


@pytest.mark.slow
def test_the_caption_says_what_is_measured_and_what_assumed(evaluator: Evaluator, tables: list[Table]) -> None:
    assert "Repaired: 50 % of the corruption (measured in the corruption campaign), at 0.25 %" in tables[0].caption
    assert f"{ROBUST} on the score half of real runs, strict, at the threshold of its settings: " in tables[0].caption
    assumed = overhead_ratio.caption(MeasuredWarnings(None, "nobody watched"), RepairEffect())
    assert "Repaired: 99 % of the corruption (assumed), at 1 % of the compute (arXiv 2604.00726)" in assumed
    assert "No warnings: nobody watched." in assumed


@pytest.mark.slow
def test_one_assumption_is_changed_at_a_time(tables: list[Table]) -> None:
    first = tables[0].rows[-4]
    base = tables[1].rows[0]
    assert base["tor_checkpoints"] == first["tor"]
    changed = [tuple(row.values())[1:] for row in tables[1].rows]
    assert len({str(cells) for cells in changed}) > 7  # no two rows are the same without reason


def test_the_variants_differ_from_the_base_in_what_they_say() -> None:
    warnings = Warnings(
        seen_steps={"NODE_FAILURE": np.array([5.0, np.nan])}, false_alarms=np.zeros(1), healthy_steps=np.ones(1)
    )
    job = Job(gpus=16_384)
    known = overhead_ratio.variants(MeasuredWarnings(warnings), RepairEffect(), job)
    base = known.pop("nothing (Table 17)")
    for name, variant in known.items():
        assert variant != base, name
        assert variant == replace(base, job=variant.job, found=variant.found, repair=variant.repair)
    longer = known["interval for the failures not warned"].job
    assert longer.interval_h == pytest.approx(job.interval_h / np.sqrt(1 - 0.5 * 220 / 419))


@pytest.mark.long
def test_the_same_seed_gives_the_same_bytes(evaluator: Evaluator, tables: list[Table]) -> None:
    again = build_tables(Inputs({"real": evaluator}, live=CAMPAIGN), ["17"])
    assert [to_csv(table) for table in again] == [to_csv(table) for table in tables]


@pytest.mark.slow
def test_without_the_detector_the_cells_say_why(evaluator: Evaluator) -> None:
    blind = Evaluator(evaluator.study, {"r_metric": evaluator.detectors["r_metric"]}, evaluator.scores,
                      evaluator.signals_3N, draws=20)  # fmt: skip
    table = build_tables(Inputs({"real": blind}), ["17"])[0]
    text = to_markdown(table)
    assert text.count("r_metric_robust was not asked for") == 2  # caption and note
    assert [score.defined for score in scores(table, "tor")] == 5 * [True, False, False, True]


def test_a_simulated_study_has_no_such_table(tmp_path: Path) -> None:
    study = load_study(build_logs(tmp_path / "logs", backend="simulator"), jobs=1)
    simulated = Evaluator.of(study, ["r_metric"], jobs=1, draws=20)
    assert build_tables(Inputs({"simulated": simulated}), ["17"]) == []


@pytest.mark.long
def test_the_figure(evaluator: Evaluator) -> None:
    (drawing,) = draw_figures(Inputs({"real": evaluator}, live=CAMPAIGN), ["9"])
    assert drawing.name == "figure_9_overhead_ratio"
    assert drawing.files["png"][:4] == b"\x89PNG"
    assert "50 % of the corruption (measured" in drawing.caption
    assert picture.draw(evaluator, CAMPAIGN).files["png"] == drawing.files["png"]


def test_the_figure_leaves_out_what_is_undefined() -> None:
    known = overhead_ratio.by_size(MeasuredWarnings(None, "nobody watched"), RepairEffect(), (8, 16_384), 0)
    drawn = picture.figure(known)
    assert_texts_are_clear(drawn)
    left, right = drawn.axes
    assert left.get_legend_handles_labels()[1] == [CHECKPOINTS, BOUND]
    assert right.get_legend_handles_labels()[1] == [BOUND]
    assert left.get_xscale() == "log"
