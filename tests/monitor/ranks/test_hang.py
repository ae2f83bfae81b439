"""The watch for hangs over real processes, with Gloo on the CPU; what the processes do is in scenarios.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmetric.log_reader import read_log
from rmetric.monitor.ranks.phases import EXCHANGE, UPDATE
from rmetric.monitor.ranks.worker_times import TIMED
from tests.live.processes import needs_gloo, run_processes
from tests.monitor.ranks.scenarios import HANGS_AT

SCENARIOS = "tests.monitor.ranks.scenarios"

pytestmark = [pytest.mark.long, needs_gloo]


def _told(folder: Path, scenario: str, alive: tuple[int, ...], processes: int) -> list[dict[str, Any]]:
    ended = run_processes(SCENARIOS, scenario, folder, processes)
    files = [folder / f"told_{rank}.json" for rank in range(processes)]
    assert [rank for rank in alive if not files[rank].exists()] == [], "\n".join(process.errors for process in ended)
    return [json.loads(files[rank].read_text()) for rank in alive]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("scenario", "worker", "function"),
    [("deadlock_in_data_loading", 1, "_deadlock"), ("never_enters_the_collective", 2, "get")],
)
def test_a_rank_that_hangs_is_named_on_every_rank_with_its_stack(
    tmp_path: Path, scenario: str, worker: int, function: str
) -> None:
    for told in _told(tmp_path, scenario, (0, 1, 2), processes=3):
        assert (told["workers"], told["phase"], told["step"], told["silent"]) == ([worker], "input", HANGS_AT, False)
        assert any(function in frame for frame in told["stack"])
    (hang,) = [event for event in read_log(tmp_path / "run.jsonl").events if event["event"] == "HANG"]
    assert (hang["worker"], hang["step"], hang["seen_by"]) == (worker, HANGS_AT, 0)
    assert sorted(line["seen_by"] for line in _lines(tmp_path / "run.hangs.jsonl")) == [1, 2]


def test_a_stopped_rank_is_named_on_those_that_are_alive(tmp_path: Path) -> None:
    for told in _told(tmp_path, "stopped", (0,), processes=2):
        assert (told["workers"], told["silent"]) == ([1], True)
        assert told["phase"] in (*TIMED, EXCHANGE, UPDATE)  # the last one that it told, a beat before it was stopped
    assert [event["worker"] for event in read_log(tmp_path / "run.jsonl").events if event["event"] == "HANG"] == [1]


def test_the_others_tell_of_it_if_the_rank_that_writes_the_log_is_stopped(tmp_path: Path) -> None:
    for told in _told(tmp_path, "first_stopped", (1, 2), processes=3):
        assert (told["workers"], told["silent"]) == ([0], True)
    assert {(line["worker"], line["seen_by"]) for line in _lines(tmp_path / "run.hangs.jsonl")} == {(0, 1), (0, 2)}


def test_a_slow_evaluation_pause_or_checkpoint_is_no_hang(tmp_path: Path) -> None:
    ended = run_processes(SCENARIOS, "slow_but_in_order", tmp_path)
    assert [process.code for process in ended] == [0, 0], "\n".join(process.errors for process in ended)
    events = read_log(tmp_path / "run.jsonl").events
    assert [event["event"] for event in events if "HANG" in event["event"]] == []
    assert not (tmp_path / "run.hangs.jsonl").exists()
    assert events[-1]["event"] == "EXPERIMENT_SUCCESS"
