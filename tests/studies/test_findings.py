"""Findings are judged by onset and label: right, wrong, false or unknown; other tools by a CSV."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from rmetric.diagnosis import diagnose
from rmetric.errors import UserError
from rmetric.records import Observations, Run
from studies.findings.__main__ import main
from studies.findings.judging import Answer, Said, answers_of, ours, problems, verdict
from studies.findings.truth import Labelled, Problem, of_set

REAL_RUNS = Path(__file__).parents[1] / "data" / "real_runs"
RUN = Run("run", {}, Observations(np.arange(600)))
FAULTY = Labelled("set", RUN, (Problem("LR_SPIKE", "failed", 300),))
HEALTHY = Labelled("set", RUN)
DISTURBED = Labelled("set", RUN, disturbed=300)


@pytest.mark.parametrize(
    ("labelled", "said", "expected"),
    [
        (FAULTY, Said("LOSS_RISE", 300, 320), "right"),
        (FAULTY, Said("LOSS_RISE", 200, 320), "wrong"),
        (FAULTY, Said("WORSE_LEVEL", 285, 599), "right"),
        (FAULTY, Said("spike", 0, dated=False), "right"),
        (HEALTHY, Said("LOSS_RISE", 300, 320), "false"),
        (HEALTHY, Said("OVERFITS", 300, 599), "unknown"),
        (DISTURBED, Said("LOSS_RISE", 301, 310), "unknown"),
        (DISTURBED, Said("LOSS_RISE", 100, 310), "false"),
    ],
)
def test_a_finding_is_judged_by_where_it_begins(labelled: Labelled, said: Said, expected: str) -> None:
    assert verdict(said, labelled) == expected


def test_a_state_seen_by_eye_is_found_by_its_own_kind_alone() -> None:
    labelled = Labelled("set", RUN, (Problem("DEAD", "by eye", 0, kinds=("DEAD",)),))
    answer = Answer((Said("LOSS_RISE", 10, 20),), 0.1)
    assert not problems([labelled], [answer])["found"].any()


@pytest.mark.slow
def test_the_sample_s_failures_are_found_and_its_twin_is_healthy() -> None:
    runs = list(of_set(REAL_RUNS))
    answers = [ours(labelled.run) for labelled in runs]
    there = problems(runs, answers)
    assert there["found"][there["outcome"] == "failed"].all()
    assert [answer.said for labelled, answer in zip(runs, answers, strict=True) if labelled.healthy] == [()]


def test_a_failure_that_the_log_states_is_no_detection() -> None:
    failure = {"event": "EXPERIMENT_FAILURE", "step": 599, "reason": "WORKER_LOST"}
    run = Run("run", {}, RUN.observations, [failure])
    assert [finding.name for finding in diagnose(run).findings] == ["FAILED"] and ours(run).said == ()


def test_another_tool_is_judged_by_its_csv(tmp_path: Path) -> None:
    file = tmp_path / "tool.csv"
    lines = [("real_runs", path.stem, "unreadable", "", 0.5) for path in sorted(REAL_RUNS.glob("*.jsonl"))]
    lines[1:2] = [(*lines[1][:2], "spike", 170, 0.5), (*lines[1][:2], "hint", "", 0.5)]
    with open(file, "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("set", "run", "kind", "step", "seconds"), *lines])
    runs = list(of_set(REAL_RUNS))
    answers = answers_of(file, runs)
    read = [answer for answer in answers if answer.readable]
    assert [(said.kind, said.first, said.dated) for said in read[0].said] == [("spike", 170, True), ("hint", 0, False)]
    assert len(read) == 1
    file.write_text("set,run,kind,step,seconds\n", encoding="utf-8")
    with pytest.raises(UserError, match="has no row for run"):
        answers_of(file, runs)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is no CSV"),
        ("set,run,step\n", "'set', 'run', 'step', 'kind' and 'seconds' are due"),
        ("set,run,kind,step,seconds\na,b,spike,soon,1\n", "has a step 'soon'"),
        ("set,run,kind,step,seconds\na,b,spike,1,long\n", "has a seconds 'long'; a number is due"),
        ("set,run,kind,step,seconds\na,b,spike,1,2,\n", "has more values in its rows"),
    ],
)
def test_a_file_that_holds_no_findings_is_refused_in_one_line(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "tool.csv").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=message) as caught:
        answers_of(tmp_path / "tool.csv", [HEALTHY])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["rmetric", "theirs"])
def test_findings_under_a_name_that_is_taken_are_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "tool.csv").write_text("set,run,kind,step,seconds\n", encoding="utf-8")
    call = ["--data", str(REAL_RUNS), "--sources", "--out", str(tmp_path), "--jobs", "1"]
    assert main([*call, "--findings", f"theirs={file}", "--findings", f"{name}={file}"]) == 2
    assert f"{name} is the name of" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_writes_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--data", str(REAL_RUNS), "--sources", "--out", str(tmp_path), "--jobs", "1"]) == 0
    with open(tmp_path / "findings_kinds.csv", encoding="utf-8", newline="") as file:
        rows = {row["kind"]: row for row in csv.DictReader(file)}
    assert int(rows["DEAD"]["right"]) >= 2
    assert int(rows["DEAD"]["false"]) == 0
