"""A case study's tables, files and dashboard count as the evaluation does, and read well whatever the runs did."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from rmetric.detectors import DETECTORS
from rmetric.evaluation.protocols import PROTOCOLS
from rmetric.evaluation.scores import Score
from rmetric.faults import FAULTS
from rmetric.measurements import MEASUREMENTS
from rmetric.reporting.table import to_csv, to_markdown, to_screen
from studies.case_study import dashboard
from studies.case_study.cli import fault_list, opening, progress_of
from studies.case_study.findings import SILENT, CaseResults, Finding
from studies.case_study.report import (
    detectors_table,
    discard_results,
    runs_table,
    scores_table,
    summary,
    trained_on,
    write_results,
)
from tests.helpers import strict_json
from tests.studies.case_studies import ONSET, STEPS, Plan, by_hand, of_real_runs
from tests.studies.test_figures import assert_texts_are_clear

pytestmark = pytest.mark.slow

FAILED = {"fault": "DATA_CORRUPTION", "failure": 141, "grad_norm": [1.0, 1.0, 150.0]}
RECOVERED = {"fault": "LR_SPIKE", "grad_norm": [150.0], "cleared": 121}
NAN_LOSS = {"fault": "SILENT_DATA_CORRUPTION", "failure": 103, "reason": "NAN_LOSS", "grad_norm": [1.0, math.inf]}
ZERO = {"fault": "SILENT_DATA_CORRUPTION", "failure": 130, "grad_norm": [0.0] * 20}
CENSORED = {"fault": "LARGE_LR", "outcome": "censored"}
CONTROL = {"fault": "NONE"}
UNCOUNTED = ("failed_paper", "failed_strict")
"""Of the runs, and not of what a detector made of them."""
COMMAND = "python run_case_study.py --seed 0"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> CaseResults:
    """One run of each kind."""
    return by_hand(tmp_path_factory.mktemp("logs"), runs=[FAILED, RECOVERED, NAN_LOSS, CENSORED, CONTROL])


@pytest.fixture(scope="module")
def written(results: CaseResults, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    write_results(results, out, COMMAND)
    return out


def norm_in(results: CaseResults, index: int, protocol: Any) -> Finding:
    """What the detector of gradient norms above 100, whose values the test sets, did in a run."""
    return results.finding(index, "grad_norm", protocol)


# --- What counts as what ---------------------------------------------------------------------------------------------


def test_a_failed_run_that_was_warned(results: CaseResults) -> None:
    for protocol in PROTOCOLS:
        found = norm_in(results, 0, protocol)
        assert (found.verdict, found.step.value, found.lead.value) == ("warned", ONSET + 2, 141 - ONSET - 2)


def test_a_run_that_recovers(results: CaseResults) -> None:
    paper, strict = (norm_in(results, 1, protocol) for protocol in PROTOCOLS)
    assert (paper.verdict, paper.step.value, paper.false_alarms.value) == ("false alarm", ONSET, 1)
    assert (strict.verdict, strict.step.value, strict.absorbed) == ("absorbed", ONSET, 1)
    assert not strict.false_alarms.defined and not strict.lead.defined
    assert strict.lead.reason == "the run did not fail"


def test_a_run_that_fails_two_steps_after_its_onset(results: CaseResults) -> None:
    found = norm_in(results, 2, "strict")
    assert (found.verdict, found.step.value, found.lead.value) == ("warned", ONSET + 1, 1)
    assert results.earliest_warning(2)[1] == ONSET + 1
    assert "grad_norm" in results.earliest_warning(2)[0]


def test_a_censored_run_is_in_no_score(results: CaseResults) -> None:
    for protocol in PROTOCOLS:
        found = norm_in(results, 3, protocol)
        assert found.verdict == "left out"
        assert found.false_alarms.reason == "censored runs are in no score"


def test_healthy_steps_are_counted_in_the_control_alone(results: CaseResults) -> None:
    assert results.carrier == 4
    for index in range(5):
        found = norm_in(results, index, "strict")
        assert found.healthy_steps == (STEPS if index == 4 else 0)
        assert found.false_alarms.defined == (index == 4)


def test_without_a_control_the_steps_before_the_onset_are_counted_once(tmp_path: Path) -> None:
    results = by_hand(tmp_path, runs=[FAILED, RECOVERED], twin_matches_control=None)
    assert [norm_in(results, index, "strict").healthy_steps for index in (0, 1)].count(ONSET - 1) == 1
    assert "no control" in to_markdown(runs_table(results))
    assert results.control is None


def test_findings_are_the_evaluation_s_counts(results: CaseResults) -> None:
    for name in results.evaluator.detectors:
        for protocol in PROTOCOLS:
            counts = results.evaluator.counts(name, protocol)
            found = [results.finding(index, name, protocol) for index in range(len(results.runs))]
            assert [item.verdict == "warned" for item in found] == (counts.tp > 0).tolist()
            if name in results.evaluator.silent:
                assert {item.verdict for item in found} == {"judged nothing", "left out"}
                continue
            assert sum(item.false_alarms.value for item in found if item.false_alarms.defined) == counts.fp.sum()
            assert sum(item.absorbed for item in found) == counts.absorbed.sum()
            for item, lead in zip(found, counts.lead.tolist(), strict=True):
                assert item.lead.value == lead or (math.isnan(lead) and item.lead.reason)


# --- Tables ----------------------------------------------------------------------------------------------------------


def test_the_table_of_runs(results: CaseResults) -> None:
    rows = {row["run"]: row for row in runs_table(results).rows}
    assert [row["outcome"] for row in rows.values()] == ["failed", "recovered", "failed", "censored", "clean"]
    failed = rows["DATA_CORRUPTION"]
    assert (failed["onset"], failed["failure"], failed["reason"]) == (ONSET, 141, "DIVERGED")
    assert rows["control"]["onset"] is None
    assert rows["SILENT_DATA_CORRUPTION"]["first_strict"] not in (None, "nobody")
    assert "2 of the 2 failed runs could be warned" in runs_table(results).caption


def test_the_table_of_detectors_has_all_of_them(results: CaseResults) -> None:
    table = detectors_table(results)
    assert len(table.rows) == len(results.evaluator.detectors)
    assert {*results.evaluator.detectors} | {*results.evaluator.skipped} == {*DETECTORS}
    rows = {row["detector"]: row for row in table.rows}
    row = rows["gradient norm > 100"]
    assert (row["warned_paper"], row["warned_strict"]) == (2, 2)
    assert (row["false_alarms_paper"], row["false_alarms_strict"], row["absorbed_strict"]) == (1, 0, 1)
    assert isinstance(row["mean_lead_strict"], Score) and row["mean_lead_strict"].value == (38 + 1) / 2
    assert rows["Isolation Forest (whole run)"]["kind"] == "whole run"
    assert not any(isinstance(cell, Score) and cell.has_interval for row in table.rows for cell in row.values())


def test_a_detector_that_judged_nothing_is_not_shown_as_quiet(tmp_path: Path) -> None:
    results = by_hand(tmp_path, runs=[FAILED, CONTROL])
    results.evaluator.scores["loss_spike"] = np.full_like(results.evaluator.scores["loss_spike"], np.nan)
    assert results.evaluator.silent == {"loss_spike"}
    for index, protocol in ((0, "strict"), (1, "paper")):
        found = results.finding(index, "loss_spike", protocol)  # type: ignore[arg-type]
        assert (found.verdict, found.false_alarms.reason) == ("judged nothing", SILENT)
    table, title = detectors_table(results), DETECTORS["loss_spike"].title
    row = next(row for row in table.rows if row["detector"] == title)
    cells = {key: cell for key, cell in row.items() if key not in ("detector", "kind", "threshold", *UNCOUNTED)}
    assert {"false_alarms_strict", "upper_bound_strict", "warned_paper"} <= {*cells}
    for key, cell in cells.items():
        assert isinstance(cell, Score) and cell.reason == SILENT, key
    entry = summary(results, COMMAND)["detectors"]["loss_spike"]
    assert entry["gave_scores"] is False and entry["strict"]["false_alarms"] is None


def test_detectors_that_could_hear_nothing_are_left_out_and_named(results: CaseResults) -> None:
    assert "qk_entropy" in results.evaluator.skipped
    assert "loss_spike" not in results.evaluator.skipped
    (note,) = [note for note in detectors_table(results).notes if note.startswith("Left out")]
    assert DETECTORS["qk_entropy"].title in note


def test_where_nothing_failed_leads_are_undefined_and_say_why(tmp_path: Path) -> None:
    results = by_hand(tmp_path, runs=[RECOVERED, CONTROL])
    text = to_markdown(detectors_table(results))
    assert "no run failed" in text and "no run was warned" in text
    entry = summary(results, COMMAND)["detectors"]["r_metric"]["strict"]
    assert entry["mean_lead"] is None and entry["undefined"]["mean_lead"] == "no run was warned"
    assert entry["warned"] is None and entry["undefined"]["f1"] == "no run failed"


def test_tables_fit_the_screen(results: CaseResults) -> None:
    for table in (runs_table(results), detectors_table(results)):
        assert max(map(len, to_screen(table, 120).splitlines())) <= 120


def test_the_long_table_has_every_run_detector_and_protocol(results: CaseResults) -> None:
    rows = list(csv.DictReader(to_csv(scores_table(results)).splitlines()))
    assert len(rows) == 5 * len(results.evaluator.detectors) * 2
    assert len({(row["run"], row["detector"], row["protocol"]) for row in rows}) == len(rows)
    (row,) = [
        row for row in rows if (row["run"], row["detector"], row["protocol"]) == ("run_00", "grad_norm", "strict")
    ]
    assert (row["verdict"], row["alert_step"], row["lead_steps"]) == ("warned", str(ONSET + 2), "38")
    missed = next(row for row in rows if row["verdict"] == "missed")
    assert missed["lead_steps"] == "" and "not warned" in missed["undefined"]


# --- Files -----------------------------------------------------------------------------------------------------------


def test_all_files_are_there(written: Path) -> None:
    tables = {f"{name}.{ending}" for name in ("runs", "detectors") for ending in ("md", "csv", "tex")}
    others = {"scores.csv", "metrics.csv", "held_out.csv", "summary.json", "captions.md", "dashboard.png"}
    assert {path.name for path in written.iterdir()} == tables | others | {"dashboard.pdf"}


def test_metrics_hold_every_record_of_every_run(results: CaseResults, written: Path) -> None:
    frame = pd.read_csv(written / "metrics.csv", keep_default_na=True)
    assert len(frame) == sum(len(run.observations) for run in results.runs) == 4 * STEPS + 103
    assert {*MEASUREMENTS, "r_metric", "sigma_sq_norm", "alerts", "since_onset"} <= {*frame.columns}
    broken = frame[(frame["run"] == "run_02") & (frame["step"] == ONSET + 1)].iloc[0]
    assert math.isinf(broken["grad_norm"]) and broken["since_onset"] == 1
    assert "grad_norm@102" in broken["alerts"].split()
    assert frame["attention_logit_max"].isna().all()
    assert frame[frame["run"] == "run_04"]["since_onset"].isna().all()


def test_r_in_the_metrics_is_that_of_the_scores(results: CaseResults, written: Path) -> None:
    frame = pd.read_csv(written / "metrics.csv")
    assert frame["r_metric"].tolist() == pytest.approx(results.evaluator.scores["r_metric"], rel=1e-14)


def test_alerts_so_far_only_grow(written: Path) -> None:
    frame = pd.read_csv(written / "metrics.csv", keep_default_na=False)
    for _, run in frame.groupby("run"):
        counts = [len(text.split()) for text in run["alerts"]]
        assert counts == sorted(counts)


def test_held_out_losses_are_written(results: CaseResults, written: Path) -> None:
    frame = pd.read_csv(written / "held_out.csv")
    assert list(frame.columns) == ["step", "twin", *(run.name for run in results.runs)]
    assert frame["twin"].tolist() == pytest.approx(results.study.held_out["twin"])


def test_the_summary_is_strict_json_and_says_what_was_trained_on(results: CaseResults, written: Path) -> None:
    found = strict_json((written / "summary.json").read_bytes())
    assert "Python 3.11.9" in found["trained_on"] and "0.13 million" in found["trained_on"]
    assert found["command"] == COMMAND
    assert found["plan"]["onset"] == ONSET and found["plan"]["rows"] == 16
    assert found["description"]["steps_per_s"] == 80.0
    assert found["control_equals_twin"] is True
    assert (found["distinct_healthy_steps"], found["healthy_steps_counted_in"]) == (STEPS, "run_04")
    assert [run["outcome"] for run in found["runs"]] == ["failed", "recovered", "failed", "censored", "clean"]
    assert {*found["detectors"]} == {*results.evaluator.detectors}
    assert found["detectors"]["grad_norm"]["strict"]["warned"] == 2
    assert found["r_metric_largest_difference"] is None  # these logs do not hold R


def test_the_summary_names_no_path_of_this_machine(tmp_path: Path) -> None:
    results = by_hand(tmp_path, runs=[CONTROL])
    object.__setattr__(results.study, "plan", Plan(faults=("NONE",), plugins=(str(tmp_path / "mine.py"),)))
    assert str(tmp_path) not in json.dumps(summary(results, COMMAND))


def test_another_text_has_no_python_version() -> None:
    class Fake:
        class study:  # noqa: N801
            description = {"model": "m", "dataset": "my text"}  # noqa: RUF012

    assert trained_on(Fake()) == "m, trained on: my text."  # type: ignore[arg-type]


def test_writing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    results = by_hand(tmp_path, runs=[NAN_LOSS])
    contents = []
    for name in ("first", "second"):
        (out := tmp_path / name).mkdir()
        (out / "dashboard_7.png").write_text("of an earlier study with more pages")
        write_results(results, out, COMMAND)
        contents.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert contents[0] == contents[1]
    assert "dashboard_7.png" not in contents[0]


def test_discarding_results_leaves_logs_and_what_others_put_there(written: Path, tmp_path: Path) -> None:
    for path in written.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for name in ("run_00.jsonl", "notes.txt"):
        (tmp_path / name).write_text("kept")
    discard_results(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "run_00.jsonl"]


def test_a_full_disk_leaves_no_summary(results: CaseResults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "captions.md")

    (tmp_path / "summary.json").write_text("{}")
    monkeypatch.setattr(dashboard, "rendered", lambda figure: {})
    monkeypatch.setattr("studies.case_study.report.write_figures", full)
    with pytest.raises(OSError):
        write_results(results, tmp_path, COMMAND)
    assert not (tmp_path / "summary.json").exists()


# --- The dashboard ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "runs",
    [
        [FAILED, RECOVERED, NAN_LOSS, CENSORED, ZERO, CONTROL],
        [NAN_LOSS],
        [CONTROL],
        [FAILED, {**FAILED, "grad_norm": [1e9, 1e12, 3e5]}, CONTROL, RECOVERED],
    ],
    ids=["six", "one", "control only", "four, huge values"],
)
def test_texts_of_the_dashboard_are_clear_of_each_other(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    figure = dashboard.page(by_hand(tmp_path, runs=runs), range(len(runs)))
    assert_texts_are_clear(figure)
    assert min(text.get_fontsize() for text in figure.findobj(Text) if text.get_text()) >= 8.0
    assert figure.get_figwidth() <= 7.2 and figure.get_figheight() <= 9.7


def test_the_held_out_loss_does_not_rise_before_the_step_at_which_it_was_judged(tmp_path: Path) -> None:
    axes = dashboard.page(by_hand(tmp_path, runs=[FAILED]), [0]).axes[0]
    assert "steps-post" in [line.get_drawstyle() for line in axes.lines]


def test_real_runs_on_a_page(real_logs: list[Path]) -> None:
    results = of_real_runs(real_logs, [1, 12, 9, 11, 3, 0])
    assert_texts_are_clear(dashboard.page(results, range(6)))


def test_many_runs_take_several_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "rendered", lambda figure: {"axes": len(figure.axes)})
    drawings = dashboard.draw(by_hand(tmp_path, runs=[*[NAN_LOSS] * 6, CONTROL]))
    assert [drawing.name for drawing in drawings] == ["dashboard_1", "dashboard_2"]
    assert "page 2 of 2" in drawings[1].title
    assert sum(drawing.files["axes"] for drawing in drawings) == 7 * len(dashboard.PANELS)  # type: ignore[misc]


def test_every_panel_is_named_once(results: CaseResults) -> None:
    figure = dashboard.page(results, range(3))
    named = [ax.get_ylabel() for ax in figure.axes if ax.get_ylabel()]
    assert len(named) == len(dashboard.PANELS) and len(figure.axes) == 3 * len(dashboard.PANELS)
    assert [ax.get_xlabel() for ax in figure.axes if ax.get_xlabel()] == [f"steps since step {ONSET}"] * 3


def test_marks_lie_where_the_evaluation_counts_them(results: CaseResults) -> None:
    figure = dashboard.page(results, [2])
    for ax in figure.axes:
        lines = [
            line.get_xdata()[0] for line in ax.lines if len({*line.get_xdata()}) == 1 and len(line.get_xdata()) == 2
        ]
        assert {0, 1, 2} <= {*lines}  # onset, warning, failure


def test_what_is_not_finite_is_marked_and_not_drawn(results: CaseResults) -> None:
    figure = dashboard.page(results, [2])
    norms = figure.axes[2]
    crosses = [line for line in norms.lines if line.get_marker() == "x"]
    assert [line.get_xdata().tolist() for line in crosses] == [[1]]
    curve = np.concatenate([line.get_ydata() for line in norms.lines if line.get_marker() == "None"])
    assert np.isfinite(curve[~np.isnan(curve)]).all()


def test_a_norm_of_exactly_zero_is_marked(tmp_path: Path) -> None:
    figure = dashboard.page(by_hand(tmp_path, runs=[ZERO, CONTROL]), [0])
    (squares,) = [line for line in figure.axes[2].lines if line.get_marker() == "s"]
    assert squares.get_xdata().tolist() == list(range(20))


def test_a_study_that_was_not_judged_says_so(results: CaseResults) -> None:
    held_out, results.study.held_out["run_00"] = results.study.held_out["run_00"], []
    try:
        figure = dashboard.page(results, [0])
    finally:
        results.study.held_out["run_00"] = held_out
    assert "not judged" in [text.get_text() for text in figure.axes[0].texts]


# --- The screen ------------------------------------------------------------------------------------------------------


def test_the_opening_says_what_is_trained_on_what() -> None:
    class Started(Plan):
        dataset = ""

    said = opening(Started(faults=("LR_SPIKE", "NONE")), 2)  # type: ignore[arg-type]
    assert "standard library of Python 3." in said and "100 healthy steps, then 2 runs and their twin" in said
    assert "step 101 to 200, in 2 processes" in said


def test_progress_begins_with_the_first_step() -> None:
    begun: list[int] = []
    with progress_of(Plan(faults=("NONE",)), begin=lambda: begun.append(1)) as tell:  # type: ignore[arg-type]
        assert not begun
        tell("healthy prefix", 1)
        tell("twin", 99)
    assert begun == [1]


def test_every_fault_is_listed_with_its_parameters() -> None:
    listed = fault_list()
    assert "factor=15.0" in listed
    assert len(listed.splitlines()) == 2 * len(FAULTS)
