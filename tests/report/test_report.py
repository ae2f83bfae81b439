"""Curves and command of a report, without a browser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rmetric.commands import main
from rmetric.diagnosis import diagnose
from rmetric.importers import portions_of
from rmetric.records import Observations, reported_evaluations
from rmetric.report import buckets_for
from rmetric.report.curves import ThinnedCurve, extend_curves
from rmetric.report.reported import ReportedRun
from rmetric.report.tables import findings_table, numbers_table


def test_a_long_curve_keeps_its_spikes_and_ends() -> None:
    rng = np.random.default_rng(0)
    steps, values = np.arange(1_000_000), 2.0 + 0.01 * rng.standard_normal(1_000_000)
    values[[123_456, 777_777]] = 50.0, -50.0
    curves: dict[str, ThinnedCurve] = {}
    for part in np.array_split(steps, 7):
        extend_curves(curves, Observations(part, {"training_loss": values[part]}), reported_evaluations([]))
    curve = curves["training_loss"]
    assert len(curve.steps) <= 2 * buckets_for(1) + 2
    assert {123_456, 777_777} <= set(curve.steps.tolist())
    assert (curve.values.max(), curve.values.min(), curve.records) == (50.0, -50.0, 1_000_000)
    assert np.all(np.diff(curve.steps) > 0)
    drawn = curve.to_dict(150)
    assert (drawn["steps"][-1], drawn["values"][-1]) == (999_999, float(f"{curve.last:.6g}"))


def test_what_was_not_measured_has_no_curve_and_what_is_not_finite_is_told() -> None:
    columns = {"training_loss": np.array([1.0, np.inf, np.nan]), "grad_norm": np.full(3, np.nan)}
    curves: dict[str, ThinnedCurve] = {}
    extend_curves(curves, Observations(np.arange(3), columns), reported_evaluations([]))
    assert list(curves) == ["training_loss"]
    curve = curves["training_loss"]
    assert (curve.steps.tolist(), curve.non_finite, curve.records) == ([0], [1], 2)


def test_all_values_that_are_not_finite_are_counted(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    losses = [2.0] * 50 + ["NaN"] * 250
    log.write_text("".join(f'{{"step": {step}, "loss": {loss}}}\n' for step, loss in enumerate(losses)))
    (run,) = (ReportedRun.of(portions) for portions in portions_of(log))
    assert run is not None
    marked = run.curves["training_loss"].non_finite
    assert len(marked) <= 100 and (marked[0], marked[-1]) == (50, 299)
    table = numbers_table([run])
    shown = dict(zip((column.title for column in table.columns), table.rows[0], strict=True))
    assert (shown["First"], shown["Highest"], shown["Last"]) == ("2", "2", "not finite")
    assert (shown["Values"], shown["Not finite"]) == ("300", "250")


def test_evaluations_are_drawn_at_their_own_steps_the_one_after_the_last_record_too(tmp_path: Path) -> None:
    log, lines = tmp_path / "run.jsonl", ['{"event": "EXPERIMENT_START", "config": {}}']
    losses = {20: "2.5", 40: "NaN", 60: "NaN", 80: "1.5"}
    for step in range(1, 81):
        lines.append(f'{{"event": "METRICS", "step": {step}, "training_loss": {2 + 1 / step}}}')
        if step in losses:
            lines.append(f'{{"event": "VALIDATION", "step": {step}, "validation_loss": {losses[step]}}}')
    log.write_text("\n".join(lines) + "\n")
    [run] = map(ReportedRun.of, portions_of(log, records=7))
    assert run is not None
    curve = run.curves["validation_loss"]
    assert (curve.steps.tolist(), curve.non_finite, curve.last) == ([20, 80], [40, 60], 1.5)
    assert numbers_table([run]).rows[1][-2:] == ["4", "2"]


def test_how_sure_a_finding_is_is_said_as_diagnose_says_it(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    lines: list[dict[str, object]] = [{"event": "METRICS", "step": step, "training_loss": 2.0} for step in range(9)]
    log.write_text("".join(map("{}\n".format, map(json.dumps, [*lines, {"event": "EXPERIMENT_FAILURE", "step": 9}]))))
    (run,) = (ReportedRun.of(portions) for portions in portions_of(log))
    assert run is not None
    ((*_, evidence, _),) = findings_table([run]).rows
    assert isinstance(evidence, dict) and evidence["remark"] == "(it says so itself)"


@pytest.mark.slow
def test_twenty_runs_make_a_page_below_three_megabytes(write_log: Callable[..., Path], tmp_path: Path) -> None:
    logs = [str(write_log(f"run{index}.jsonl", records=700, seed=index)) for index in range(20)]
    assert main(["report", *logs, "--out", str(tmp_path / "all.html")]) == 0
    assert (tmp_path / "all.html").stat().st_size < 3_000_000


def test_the_page_s_data_is_strict_json_and_cannot_end_its_element(
    write_log: Callable[..., Path], tmp_path: Path
) -> None:
    log = write_log("a--><!--<x.jsonl")
    assert main(["report", str(log), "--out", str(tmp_path / "r.html")]) == 0
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    assert "<" not in data
    assert json.loads(data)["runs"][0]["name"] == "a--><!--<x"


def test_a_log_that_cannot_be_used_is_one_line_and_the_others_are_shown(
    write_log: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    out = tmp_path / "new" / "r.html"
    status = main(["report", str(write_log("good.jsonl")), str(tmp_path / "empty.jsonl"), "--out", str(out)])
    assert status == 2
    assert out.is_file()
    assert capsys.readouterr().err.count("\n") == 1


def test_a_log_is_not_replaced_by_the_page(write_log: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log("run.jsonl")
    before = log.read_bytes()
    assert main(["report", str(log), "--out", str(log)]) == 2
    assert "exists and is not a report page; give another --out" in capsys.readouterr().err
    assert log.read_bytes() == before


def test_a_folder_as_the_page_is_refused(write_log: Callable[..., Path], tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "rmetric", "report", str(write_log("good.jsonl")), "--out", str(tmp_path)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "is a folder" in ended.stderr


def test_a_page_and_a_diagnosis_say_alike_that_a_log_has_no_end(tmp_path: Path) -> None:
    whole = next((Path(__file__).parent.parent / "data" / "real_runs").glob("*none_twin.jsonl")).read_bytes()
    for name, lines in ("ended", whole), ("killed", whole[: whole.rstrip().rfind(b"\n") + 1]):
        (tmp_path / f"{name}.jsonl").write_bytes(lines)
        [reported] = map(ReportedRun.of, portions_of(tmp_path / f"{name}.jsonl"))
        assert reported is not None
        assert reported.diagnosis.notes == diagnose(tmp_path / f"{name}.jsonl").notes
        assert any("no end of the run" in text for text in reported.diagnosis.notes) == (name == "killed")
