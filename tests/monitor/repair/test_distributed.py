"""Policies under several real processes: all of them decide the same, and the worker is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.live.processes import needs_gloo, run_processes

pytestmark = [pytest.mark.slow, needs_gloo]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the three processes found, by scenario."""
    folder = tmp_path_factory.mktemp("repair")
    ended = run_processes("tests.monitor.repair.scenarios", "distributed", folder, processes=3)
    assert [process.code for process in ended] == [0, 0, 0], "\n".join(process.errors for process in ended)
    return [process.found | {"errors": process.errors} for process in ended]


def test_a_healthy_run_is_left_alone(found: list[dict[str, Any]]) -> None:
    for process in found:
        assert [repair for repair in process["healthy"]["repairs"] if repair[2] != "agrees"] == []
        assert process["healthy"]["same"]
        assert process["healthy"]["enabled"]


@pytest.mark.parametrize(
    ("scenario", "worker_and_tensors"), [("backward", [[1], 4]), ("after", [[1], 1]), ("sharded", [])]
)
def test_a_gradient_that_is_wrong_in_one_process_is_repaired_in_all_and_the_worker_is_named(
    scenario: str, worker_and_tensors: list[Any], found: list[dict[str, Any]]
) -> None:
    for process in found:
        [repair] = [item for item in process[scenario]["repairs"] if item[2] != "agrees"]
        assert repair[:3] == [20, "RecomputeStep", "transient"]
        assert not worker_and_tensors or repair[3:] == worker_and_tensors
        assert process[scenario]["same"]


def test_every_process_tells_why_a_step_was_suspicious_in_one_of_them(found: list[dict[str, Any]]) -> None:
    here = ["a gradient is not finite"]
    there = [f"worker 1: {reason}" for reason in here]
    assert [process["after"]["reasons"] for process in found] == [[there], [here], [there]]


@pytest.mark.parametrize("scenario", ["recompute_fails", "policy_fails"])
def test_an_error_in_one_process_ends_the_repairs_of_all_in_its_step(
    found: list[dict[str, Any]], scenario: str
) -> None:
    for process in found:
        [repair] = process[scenario]["repairs"]
        assert repair[:3] == [20, "RefuseUpdate", "refused"]  # all of them leave out the update of one's NaN
        assert process[scenario]["skipped"] == [20]
        assert process[scenario]["enabled"]
        assert process[scenario]["weights"] == found[0][scenario]["weights"]


def test_the_process_with_an_error_says_what_to_do_if_the_others_cannot_be_asked(found: list[dict[str, Any]]) -> None:
    said = "asked to end their repairs; if they wait in an average of gradients, end the job: MemoryError: full"
    assert [said in process["errors"] for process in found] == [False, True, False]


def test_nor_does_it_take_the_others_a_step_longer_where_none_is_suspicious(found: list[dict[str, Any]]) -> None:
    for process in found:
        assert (process["policy_fails_calmly"]["last_step"], process["policy_fails_calmly"]["same"]) == (20, True)


def test_a_weight_that_changed_in_one_process_is_restored(found: list[dict[str, Any]]) -> None:
    restored = [[item for item in process["memory"]["repairs"] if item[2] == "restored"] for process in found]
    assert [len(items) for items in restored] == [1, 1, 1]
    assert [items[0][3:] for items in restored] == [[[1], 1]] * 3  # only one process had something to restore


def test_every_process_tells_where_a_weight_changed_and_whose_device_to_look_at(found: list[dict[str, Any]]) -> None:
    told = [process["memory"]["told"] for process in found]
    for [[message, elements]] in told:
        assert "had changed between two updates in module.0.weight" in message
        assert "look at the memory errors (ECC, Xid) of worker 1's device" in message
        [element] = elements
        assert (element["worker"], element["tensor"], element["index"]) == (1, "module.0.weight", 0)
        assert element["corrupted"] == pytest.approx(element["sound"] + 1.0)


def test_a_fault_that_stays_is_skipped_by_all(found: list[dict[str, Any]]) -> None:
    for process in found:
        assert process["stays"]["skipped"] == [20]


def test_all_processes_go_back_to_the_same_checkpoint_and_stop_together(tmp_path: Path) -> None:
    ended = run_processes("tests.monitor.repair.scenarios", "go_back", tmp_path, processes=2)
    assert [process.code for process in ended] == [0, 0], "\n".join(process.errors for process in ended)
    one, other = [process.found for process in ended]
    assert one == other  # repairs, verdicts and every weight
    repairs = one["passes"]["repairs"]
    assert {verdict for _, verdict, _ in repairs} == {"went_back"}
    assert all(to_step <= one["onset"] - 10 < one["onset"] < step for step, _, to_step in repairs)
    assert one["passes"]["stopped"] is None
    assert one["stays"]["repairs"][-1][1] == "gave_up"
    assert one["stays"]["stopped"] == one["stays"]["repairs"][-1][0]
