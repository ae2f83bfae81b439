"""The comparison with other people's tools: what they are given, what is believed of them, what becomes of failures.

The tools themselves are not installed with this project. Tools made here stand in for them; those of the requirements
file are tried where RMETRIC_PEERS_PYTHON names an interpreter that has them.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rmetric.evaluation.protocols import Timeline
from rmetric.evaluation.scores import resample
from rmetric.evaluation.studies import load_study
from rmetric.evaluation.truth import truth_of
from rmetric.log_reader import read_log
from rmetric.records import Observations, Run
from studies.findings.judging import answers_of
from studies.findings.truth import of_set
from tests.evaluation.builders import build_logs, build_run
from tests.helpers import ROOT

BENCHMARKS = ROOT / "benchmarks"
FAKE = '''
"""A tool that names every loss above 9, and the record before one above 90: that it can only do in hindsight."""
import json, os, sys, time
from peer_worker import Adapter, Finding, serve

class Fake(Adapter):
    package = "numpy"
    alarms = ("bad",)

    def findings(self, log):
        records = [json.loads(line) for line in log.read_text().splitlines()]
        losses = [record["loss"] for record in records]
        if 7777 in losses:
            raise ValueError("cannot read\\nthis")
        if 8888 in losses:
            sys.exit("gone") if len(losses) == 1 else os._exit(3)
        if 9999 in losses:
            time.sleep(60)
        high = [record["step"] for record in records if record["loss"] > 9]
        early = [records[i - 1]["step"] for i, loss in enumerate(losses) if loss > 90 and i]
        found = [Finding("high", ("bad",), tuple(high))] if high else []
        return found + ([Finding("early", ("bad",), tuple(early))] if early else [])

    def live(self, growing):
        print("talk that must not reach the answers")
        return {"bad": [growing.step for new in growing if json.loads(new[-1])["loss"] > 9]}

serve(Fake, Fake.package)
'''


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("peers")
    for name in [name for name in sys.modules if name == "peers" or name.split(".")[0] == "peer_tools"]:
        del sys.modules[name]


@pytest.fixture
def fake_tool(tmp_path: Path) -> Path:
    folder = tmp_path / "tool"
    folder.mkdir()
    (folder / "peer_worker.py").symlink_to(BENCHMARKS / "peer_tools" / "peer_worker.py")
    (folder / "fake_adapter.py").write_text(FAKE, encoding="utf-8")
    return folder / "fake_adapter.py"


@pytest.fixture
def ask(peers: ModuleType, fake_tool: Path, tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    def answers(*losses: list[float], timeout_s: float = 30.0) -> list[dict[str, Any]]:
        tasks = []
        for index, values in enumerate(losses):
            log = tmp_path / f"{index}.jsonl"
            log.write_text("".join(json.dumps({"step": 10 * i, "loss": loss}) + "\n" for i, loss in enumerate(values)))
            tasks.append({"log": str(log), "cuts": [2, len(values)], "poll": 1})
        seen: list[None] = []
        replies = peers.peer_processes.answers(
            fake_tool, sys.executable, tasks, jobs=2, timeout_s=timeout_s, done=lambda: seen.append(None)
        )
        assert len(seen) == len(tasks)
        return replies

    return answers


# -- what the tools are given ----------------------------------------------------------------------------------------


def test_a_trainer_s_log_has_what_was_measured_and_nothing_else(peers: ModuleType) -> None:
    columns = {
        "training_loss": [2.0, math.inf, 1.5],
        "validation_loss": [math.nan, 2.5, 2.5],
        "grad_norm": [1.0, math.nan, 3.0],
        "lambda": [1.0, 2.0, 3.0],
        "hardware_events": [0.0, 1.0, 0.0],
    }
    observations = Observations(np.array([3, 4, 5]), {key: np.array(value) for key, value in columns.items()})
    assert peers.peer_logs.trainer_log(observations) == [
        '{"step": 3, "loss": 2.0, "grad_norm": 1.0}\n',
        '{"step": 4, "loss": NaN, "eval_loss": 2.5}\n',
        '{"step": 5, "loss": 1.5, "grad_norm": 3.0}\n',
    ]


def test_the_beginning_of_a_log_does_not_know_its_end(peers: ModuleType, real_logs: list[Path]) -> None:
    """And no line knows the fault: a faulty run begins with the very bytes of its fault-free twin."""
    twin, faulty = (read_log(path) for path in real_logs[:2])
    of_twin, of_faulty = (peers.peer_logs.trainer_log(run.observations) for run in (twin, faulty))
    onset = truth_of(faulty).onset
    assert onset is not None
    before = int(np.searchsorted(faulty.observations.step, onset))
    assert of_faulty[:before] == of_twin[:before]
    assert of_faulty[before + 1 :] != of_twin[before + 1 :]
    assert {key for line in of_faulty for key in json.loads(line)} <= {"step", *peers.peer_logs.FIELDS}


@pytest.mark.parametrize(("failure", "records"), [(None, 5), (20, 2), (25, 2), (50, 5), (5, 1)])
def test_records_up_to_the_failure(peers: ModuleType, failure: int | None, records: int) -> None:
    run = build_run([10, 20, 30, 40, 50], onset=5, failure=failure)
    assert peers.peer_logs.records_to_failure(run, truth_of(run)) == records


def test_a_sample_keeps_the_mixture_and_depends_on_its_seed_only(peers: ModuleType) -> None:
    runs = [build_run([1], onset=1, failure=1, fault=fault) for fault in ["LR_SPIKE"] * 20 + ["DATA_CORRUPTION"] * 10]
    runs += [build_run([1]) for _ in range(10)]
    truths = [truth_of(run) for run in runs]
    draw = peers.peer_logs.sampled
    picked = draw(runs, truths, 12, 3)
    assert picked == draw(runs, truths, 12, 3) != draw(runs, truths, 12, 4)
    assert len(set(picked)) == 12
    assert [sum(runs[i].fault == fault for i in picked) for fault in ("LR_SPIKE", "DATA_CORRUPTION", "NONE")] == [
        6,
        3,
        3,
    ]
    assert draw(runs, truths, None, 0) == draw(runs, truths, 99, 0) == list(range(40))


# -- what they answer ------------------------------------------------------------------------------------------------


def test_a_named_step_is_believed_if_the_log_up_to_it_says_the_same(ask: Callable[..., list[dict[str, Any]]]) -> None:
    (answer,) = ask([1, 1, 10, 1, 95, 1])
    assert answer["verdicts"] == [[], ["bad"]]
    assert answer["named"] == {"bad": {"named": [20, 30, 40], "confirmed": [20, 40]}}
    assert answer["live"] == {"bad": [20, 40]}
    assert answer["rules"] == ["early", "high"] and answer["errors"] == {}
    assert all(seconds >= 0 for seconds in answer["seconds"].values())


def test_a_tool_that_raises_gives_no_verdict_on_that_log(
    peers: ModuleType, ask: Callable[..., list[dict[str, Any]]]
) -> None:
    raised, stopped, sound = ask([1, 1, 7777], [8888], [1, 1, 10])
    assert raised["errors"]["verdicts"] == "ValueError: cannot read" and raised["verdicts"] is None
    assert stopped["errors"]["verdicts"] == "SystemExit: gone"
    assert peers.peer_scores.broken_part(raised, "named step") is not None
    assert peers.peer_scores.broken_part(raised, "live") is None, "the live part is another command and did answer"
    assert sound["verdicts"] == [[], ["bad"]]


@pytest.mark.slow
def test_a_tool_that_dies_or_hangs_loses_that_log_only(ask: Callable[..., list[dict[str, Any]]]) -> None:
    died, hung, sound = ask([1, 1, 8888], [1, 1, 9999], [1, 1, 10], timeout_s=3.0)
    assert died == {"broken": "the process ended with status 3"}
    assert hung == {"broken": "no answer within 3 s"}
    assert sound["verdicts"] == [[], ["bad"]]


def test_the_interpreter_without_the_tool_says_so(peers: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "peer_worker.py").symlink_to(BENCHMARKS / "peer_tools" / "peer_worker.py")
    script = tmp_path / "absent_adapter.py"
    script.write_text("from peer_worker import serve\nserve(lambda: __import__('no_such_tool'), 'no-such-tool')\n")
    said = peers.peer_processes.greeting(script, sys.executable)
    assert said == {"missing": "ModuleNotFoundError: No module named 'no_such_tool'"}
    assert "missing" in peers.peer_processes.greeting(script, str(tmp_path / "no_python"))


# -- how it is scored ------------------------------------------------------------------------------------------------


def run_of_60(failure: int | None, onset: int | None = 30) -> Run:
    return build_run(list(range(60)), onset=onset, failure=failure, seed=failure or 0, total_training_steps=200)


def test_scores_stand_where_the_tool_alerts(peers: ModuleType) -> None:
    run, scores_of = run_of_60(50), peers.peer_scores.scores_of
    answer = {"live": {"bad": [10, 40]}, "named": {"bad": {"named": [10, 35], "confirmed": [35]}}, "errors": {}}
    answer["verdicts"] = [[], ["bad"]]
    cut = peers.peer_logs.records_to_failure(run, truth_of(run))
    alerts = {way: np.flatnonzero(scores_of(run, answer, way, "bad", cut)).tolist() for way in peers.peer_scores.WAYS}
    assert alerts == {
        "live": [10, 40],
        "named step": [35],
        "verdict at the failure": [],
        "verdict afterwards": [50],
    }
    assert scores_of(run, answer, "live", "other", cut) is None
    assert np.isnan(scores_of(run, {"broken": "no answer"}, "live", "bad", cut)).all()


def test_a_log_without_a_verdict_is_a_missed_failure(peers: ModuleType) -> None:
    runs = [run_of_60(50), run_of_60(45), run_of_60(None, onset=None)]
    scores = [np.zeros(60), np.full(60, math.nan), np.zeros(60)]
    scores[0][[10, 40]] = 1.0
    weights_BR = resample(3, 50, np.random.default_rng(0))
    timeline = Timeline.of(runs)
    strict = peers.peer_scores.summary(timeline, np.concatenate(scores), "strict", weights_BR)
    paper = peers.peer_scores.summary(timeline, np.concatenate(scores), "paper", weights_BR)
    alike = "the alert at 40 belongs to the episode that began at 10"
    assert [strict[name].value for name in ("tp", "fp", "fn")] == [0, 1, 2], alike
    assert [paper[name].value for name in ("tp", "fp", "fn", "mean_lead")] == [1, 0, 1, 40]
    assert not peers.peer_scores.timeless(paper)["mean_lead"].defined
    assert peers.peer_scores.as_json(paper["false_alarms_per_1000"]).keys() == {"undefined"}


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_counts_by_both_protocols(
    peers: ModuleType,
    fake_tool: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(peers, "TOOLS", {"fake": fake_tool, "absent": tmp_path / "nothing_there.py"})
    monkeypatch.setattr(peers, "pinned", lambda: {"fake": "0.0", "absent": "1.2"})
    logs = build_logs(tmp_path / "logs")
    out = tmp_path / "results" / "peers.json"
    options = ["--logs", str(logs), "--jobs", "1", "--bootstrap", "20", "--half", "all", "--out", str(out)]
    assert peers.main([*options, "--detectors", "robust_z"]) == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert report == json.loads(out.read_text(encoding="utf-8"))
    fake, absent = report["tools"]
    assert absent["install"] == peers.INSTALL and "status" in absent["missing"] and "rows" not in absent
    ways = [(row["way"], row["protocol"]) for row in fake["rows"]]
    assert ways == [(way, protocol) for way, (_, both) in peers.peer_scores.WAYS.items() for protocol in both]
    assert all(row["runs"] == 12 and row["no_verdict"] == 0 for row in fake["rows"])
    assert fake["rows"][0]["recall"]["value"] == 0.0, "losses of these logs stay below 9"
    assert report["detectors"][0]["rows"][0]["recall"]["value"] == 1.0
    for text in ("absent 1.2 is missing", "fake is", "not the pinned 0.0", "rmetric robust_z", "12 of 12 runs"):
        assert text in printed.err
    assert out.with_suffix(".md").read_text(encoding="utf-8") in printed.err


def test_half_and_limit_choose_runs(peers: ModuleType, tmp_path: Path) -> None:
    runs = peers.load_study(build_logs(tmp_path / "logs"), 1).runs
    both = [peers.chosen(runs, half, None, 0)[0] for half in ("fit", "score")]
    assert [len(half) for half in both] == [6, 6] and {run.config["repetition"] for run in both[1]} == {2}
    few, truths, description = peers.chosen(runs, "score", 3, 0)
    assert (description["judged"], description["of"]) == (3, 6)
    assert [truth.kind for truth in truths] == [truth_of(run).kind for run in few]
    assert sorted(description["kinds"]) == ["clean", "failed", "recovered"]


def test_the_requirements_pin_every_tool(peers: ModuleType) -> None:
    assert set(peers.TOOLS) < set(peers.pinned())


def test_help_and_bad_input(peers: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert peers.main(["--help"]) == 0
    assert "seconds that a tool has for one log (default: 120.0)" in " ".join(capsys.readouterr().out.split())
    assert peers.main(["--logs", str(tmp_path / "none")]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ") and told.count("\n") == 1


# -- the tools themselves --------------------------------------------------------------------------------------------

PYTHON = os.environ.get("RMETRIC_PEERS_PYTHON", "")
needs_tools = pytest.mark.skipif(not PYTHON, reason="RMETRIC_PEERS_PYTHON names no interpreter that has the tools")


def command(folder: Path, tool: str, log: Path) -> bool:
    """Whether the tool's own command calls that log an alarm."""
    words = {
        "losslint": ["check"],
        "trainproof": ["epoch"],
        "runmedic": ["diagnose", "--fail-on", "critical"],
        "trainspotter": ["analyze", "--fail-on", "error"],
    }[tool]
    program = str(Path(PYTHON).with_name(tool))
    return subprocess.run([program, *words, str(log)], cwd=folder, capture_output=True).returncode == 1


@needs_tools
@pytest.mark.parametrize("tool", ["losslint", "trainproof", "runmedic", "trainspotter"])
def test_the_adapter_says_what_the_command_says(
    peers: ModuleType, tool: str, real_logs: list[Path], tmp_path: Path
) -> None:
    tasks = []
    for index in (0, 1, 5, 9, 12):
        lines = peers.peer_logs.trainer_log(read_log(real_logs[index]).observations)
        (tmp_path / f"{index}.jsonl").write_text("".join(lines), encoding="utf-8")
        tasks.append({"log": str(tmp_path / f"{index}.jsonl"), "cuts": [len(lines)], "poll": 100})
    answers = peers.peer_processes.answers(peers.TOOLS[tool], PYTHON, tasks, jobs=1, timeout_s=60.0, done=lambda: None)
    alarm = peers.peer_processes.greeting(peers.TOOLS[tool], PYTHON)["alarms"][0]
    said = [alarm in answer["verdicts"][-1] for answer in answers]
    assert said == [command(tmp_path, tool, Path(task["log"])) for task in tasks]
    assert len(set(said)) == 2


@needs_tools
@pytest.mark.parametrize("tool", ["losslint", "trainproof", "trainscope", "trainspotter"])
def test_live_alerts_do_not_depend_on_what_comes_later(
    peers: ModuleType, tool: str, real_logs: list[Path], tmp_path: Path
) -> None:
    lines = peers.peer_logs.trainer_log(read_log(real_logs[1]).observations)
    tasks = []
    for records in (185, 260):
        (tmp_path / f"{records}.jsonl").write_text("".join(lines[:records]), encoding="utf-8")
        tasks.append({"log": str(tmp_path / f"{records}.jsonl"), "cuts": [records], "poll": 1})
    short, long = peers.peer_processes.answers(
        peers.TOOLS[tool], PYTHON, tasks, jobs=1, timeout_s=60.0, done=lambda: None
    )
    assert short["errors"] == long["errors"] == {}
    for alarm, steps in short["live"].items():
        assert steps == [step for step in long["live"][alarm] if step < 185]
    assert any(long["live"].values()) or tool == "losslint"


@pytest.mark.slow
def test_the_page_has_todays_scores_of_our_own_detectors(peers: ModuleType) -> None:
    study = load_study(ROOT / "data" / "real_runs.parquet", jobs=1)
    runs, _, _ = peers.chosen(study.runs, "score", None, 0)
    timeline, weights_BR = Timeline.of(runs), resample(len(runs), 2000, np.random.default_rng(0))
    page = (ROOT / "docs" / "peers.md").read_text(encoding="utf-8")
    for detector in peers.OWN:
        for row in peers.own(detector, runs, timeline, weights_BR)["rows"]:
            f1 = row["f1"]
            cells = [f"{row['precision'].value:.3f}", f"{row['recall'].value:.3f}"]
            cells += [f"{f1.value:.3f} [{f1.low:.3f}, {f1.high:.3f}]"]
            if row["protocol"] == "strict":
                cells += [f"{row['false_alarms_per_1000'].value:.2f}", f"{row['mean_lead'].value:.1f}"]
            assert f"| rmetric `{detector}` | {row['alarm']} | live | {' | '.join(cells)} |\n" in page


def test_findings_alone_are_answered_with_their_first_steps(peers: ModuleType, fake_tool: Path, tmp_path: Path) -> None:
    log = tmp_path / "0.jsonl"
    log.write_text("".join(json.dumps({"step": 10 * i, "loss": loss}) + "\n" for i, loss in enumerate((1, 10, 100))))
    (answer,) = peers.peer_processes.answers(
        fake_tool, sys.executable, [{"log": str(log), "parts": ["findings"]}], jobs=1, timeout_s=30.0, done=lambda: None
    )
    assert answer["findings"] == [["high", 10], ["early", 10]]
    assert answer["seconds"]["findings"] >= 0.0


@pytest.mark.long
def test_findings_of_tools_become_a_file_that_the_study_reads(
    peers: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = importlib.import_module("peer_findings")
    logs = str(Path(__file__).parents[1] / "data" / "real_runs")
    assert script.main(["--data", logs, "--sources", "--tools", "rmetric", "--out", str(tmp_path)]) == 0
    runs = list(of_set(Path(logs)))
    answers = answers_of(tmp_path / "rmetric.csv", runs)
    assert all(answer.readable for answer in answers)
    assert sum(bool(answer.said) for answer in answers) >= 10
    monkeypatch.delitem(sys.modules, "peer_findings")
