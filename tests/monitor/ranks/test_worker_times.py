"""Workers' own times over real processes, with Gloo on the CPU; what the processes do is in scenarios.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmetric.log_reader import read_log
from rmetric.records import Run
from tests.live.processes import needs_gloo, run_processes
from tests.monitor.ranks.scenarios import SLOW_NETWORK_AT

SCENARIOS = "tests.monitor.ranks.scenarios"

pytestmark = [pytest.mark.long, needs_gloo]


def _run(folder: Path, scenario: str) -> Run:
    ended = run_processes(SCENARIOS, scenario, folder)
    assert [process.code for process in ended] == [0, 0], "\n".join(process.errors for process in ended)
    return read_log(folder / "run.jsonl")


def test_the_slow_worker_is_named_with_its_phase_and_not_its_victim(tmp_path: Path) -> None:
    run = _run(tmp_path, "slow_forward")
    lasting = [event for event in run.events if event["event"] == "HARDWARE_EVENT" and "message" in event]
    assert [(event["worker"], event["phase"]) for event in lasting] == [(1, "forward")]
    assert 60 < lasting[0]["step"] <= 100


def test_the_log_has_every_workers_own_times(tmp_path: Path) -> None:
    run = _run(tmp_path, "slow_forward")
    last = [event for event in run.events if event["event"] == "WORKER_TIMES"][-1]
    assert (last["step"], last["steps"]) == (120, 20)
    victim, slow = last["forward_s"]
    assert slow >= 0.024
    assert 0.004 <= victim < slow  # it waits elsewhere
    assert all(seconds >= 0.004 for phase in ("input_s", "backward_s") for seconds in last[phase])
    assert last["backward_s"][0] < 0.024  # not even there: its gradients are ready long before the other's


def test_stalls_now_and_then_are_told_of_each_and_counted_for_the_worker(tmp_path: Path) -> None:
    run = _run(tmp_path, "stalls")
    stalls = [event for event in run.events if event.get("phase") == "input" and event.get("worker") == 0]
    assert [event["step"] for event in stalls] == [40, 47]
    steps = list(run.observations.step)
    assert [run.observations["event_worker"][steps.index(step)] for step in (40, 47)] == [0.0, 0.0]


def test_a_worker_that_waits_for_anothers_evaluation_is_not_slow(tmp_path: Path) -> None:
    run = _run(tmp_path, "waits_for_an_evaluation")
    slow = [event["step"] for event in run.events if event.get("component") == "slow worker"]
    assert not {40, 47} & {*slow}
    (times,) = [event for event in run.events if event["event"] == "WORKER_TIMES" and event["step"] == 40]
    assert all(seconds < 0.3 for seconds in times["input_s"])


def test_a_step_in_which_another_worker_pauses_is_not_slow_and_one_that_all_wait_in_is_nobodys(tmp_path: Path) -> None:
    run = _run(tmp_path, "pauses_alone")
    [slow] = [event for event in run.events if event["event"] == "HARDWARE_EVENT"]
    assert slow["step"] == 2 * SLOW_NETWORK_AT
    assert "worker" not in slow
