"""The report of going back, the study that is taken up again, and the limits of its rules' setting."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from studies.courses import FILE, read_results
from studies.rollback import run as study
from studies.rollback.offline import main as stream
from studies.rollback.plan import Group
from studies.rollback.report import healthy_steps, main, rows_of, table
from studies.zoo.plan import ZooPlan, ZooSpec

Capture = pytest.CaptureFixture[str]


def row(policy: str, outcome: str = "recovered", healthy: int = 150, scenario: str = "stays") -> dict[str, Any]:
    return {
        "scenario": scenario, "policy": policy, "outcome": outcome, "rollbacks": 1, "steps_lost": 100,
        "healthy_steps": healthy, "false_rollbacks": 0,
    }  # fmt: skip


def failing(name: str, onset: int, *rows: dict[str, Any]) -> dict[str, Any]:
    return {"group": "mlp_lion_0", "name": name, "fault": "NAN_BATCH", "onset": onset, "rows": list(rows)}


def test_a_folder_without_results_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    assert main(["--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "holds no results; make them with python -m studies.rollback.run" in error and error.count("\n") == 1


def test_healthy_steps_that_forks_share_count_once() -> None:
    results = [
        failing("one", 401, row("go_on"), row("rewind"), row("alone", healthy=0)),  # steps 251 to 400
        failing("two", 501, row("go_on")),  # 351 to 500
    ]
    assert healthy_steps(results) == 250
    whole = {"group": "mlp_lion_0", "name": "healthy", "rows": [row("go_on", healthy=1000, scenario="healthy")]}
    assert healthy_steps([*results, whole]) == 1000
    assert healthy_steps([*results, whole | {"group": "cnn_sgd_0"}]) == 1250


def test_an_undecided_run_is_not_still_failing_and_no_run_has_no_share() -> None:
    kinds = ("recovered", "failed", "censored", "stopped")
    found = table(rows_of([failing(kind, 401, row("go_on", kind)) for kind in kinds]))
    outcomes = ["failing runs", "within 5 %", "share", "stopped", "still failing", "undecided"]
    passes, _, stays, _ = found[outcomes].to_numpy().tolist()
    assert stays == [4, 1, "25%", 1, 1, 1]
    assert passes == [0, 0, "n/a", 0, 0, 0]


def test_a_result_is_not_appended_to_a_line_that_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def here(work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[tuple[int, Any]]:
        yield from ((index, work(*task)) for index, task in enumerate(tasks))

    group = Group("mlp_lion_0", ZooPlan.with_bugs(), ZooSpec(kind="mlp_lion", seed=0), ())
    monkeypatch.setattr(study, "groups", lambda data: [group])
    monkeypatch.setattr(study, "in_fresh_processes", here)
    monkeypatch.setattr(study, "training_device", lambda name: None)
    monkeypatch.setattr(study, "train_group", lambda *asked: iter([{"group": group.name, "name": study.HEALTHY}]))
    whole = json.dumps({"group": "cnn_sgd_0", "name": study.HEALTHY}) + "\n"
    (tmp_path / FILE).write_text(whole + whole[:20])
    assert study.main(["--out", str(tmp_path), "--jobs", "1"]) == 0
    assert [result["group"] for result in read_results(tmp_path)] == ["cnn_sgd_0", "mlp_lion_0"]


@pytest.mark.parametrize("quantile", ["7", "-1", "nan", "high"])
def test_a_quantile_that_is_none_is_refused(quantile: str, capsys: Capture) -> None:
    assert stream(["--quantile", quantile]) == 2
    error = capsys.readouterr().err
    assert "--quantile" in error and error.count("\n") == 1
