"""σ² over real processes, with Gloo on the CPU; what the processes do is in ddp_scenarios.py."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rmetric.errors import UserError
from rmetric.log_reader import read_log
from rmetric.monitor.dispersion import MicroBatchDispersion, dispersion_source
from rmetric.monitor.dispersion.collectives import patience_s
from rmetric.monitor.dispersion.mean_loss import LossExchange
from rmetric.monitor.worker_lost import WorkerLost
from rmetric.signals import GradientNoiseScale, gradient_variance
from tests.helpers import lines_of
from tests.live.processes import Ended, needs_gloo, run_processes
from tests.monitor.common import events_of

SCENARIOS = "tests.monitor.ddp_scenarios"

pytestmark = [pytest.mark.slow, needs_gloo]


@pytest.fixture(scope="module")
def healthy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("healthy")


@pytest.fixture(scope="module")
def healthy(healthy_folder: Path) -> list[dict[str, Any]]:
    """What the two processes found, by scenario."""
    ended = run_processes(SCENARIOS, "healthy", healthy_folder)
    assert [process.code for process in ended] == [0, 0], "\n".join(process.errors for process in ended)
    return [process.found for process in ended]


@pytest.fixture(scope="module")
def killed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("killed")


@pytest.fixture(scope="module")
def killed(killed_folder: Path) -> list[Ended]:
    return run_processes(SCENARIOS, "killed", killed_folder)


def _steps(healthy: list[dict[str, Any]], scenario: str) -> list[tuple[list[float], list[float] | None, float]]:
    """Of each step: every worker's own norm in double precision, what was collected, the norm of the mean."""
    mine, other = (found[scenario]["steps"] for found in healthy)
    assert [step["norms"] for step in mine] == [step["norms"] for step in other]  # all workers know the same
    return [
        ([one["own"], two["own"]], one["norms"], one.get("mean", math.nan))
        for one, two in zip(mine, other, strict=True)
    ]


# -- DistributedDataParallel ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scenario",
    ["plain", "many_buckets", "views", "unused", "accumulated", "own_hook", "own_hook_accumulated", "built_in_hook"],
)
def test_sigma_squared_is_the_variance_over_the_workers_own_gradients(
    healthy: list[dict[str, Any]], scenario: str
) -> None:
    first, *later = _steps(healthy, scenario)
    assert first[1] is None  # all processes only agree in it
    for own, norms, _ in later:
        assert norms == pytest.approx(own, rel=1e-6)
        assert gradient_variance(np.array(norms)) == pytest.approx(np.var(own), rel=1e-4)
        assert np.var(own) > 1e-6
    assert healthy[0][scenario]["source"] == "workers"


@pytest.mark.parametrize(
    "scenario", ["plain", "many_buckets", "views", "accumulated", "own_hook", "built_in_hook", "power_sgd"]
)
def test_training_is_the_same_to_the_last_bit(healthy: list[dict[str, Any]], scenario: str) -> None:
    assert [found[scenario]["same_as_unwatched"] for found in healthy] == [True, True]


def test_a_resumed_run_is_measured_from_its_first_step(healthy: list[dict[str, Any]]) -> None:
    for own, norms, _ in _steps(healthy, "resumed"):
        assert norms == pytest.approx(own, rel=1e-6)


@pytest.mark.parametrize("scenario", ["averaged_each_pass", "sharded_each_pass"])
def test_a_step_that_is_reduced_pass_by_pass_is_not_measured(healthy: list[dict[str, Any]], scenario: str) -> None:
    assert [norms for _, norms, _ in _steps(healthy, scenario)] == [None] * 4


def test_a_monitor_in_one_process_only_is_noticed_and_hooks_nothing(healthy: list[dict[str, Any]]) -> None:
    found = [process["only_first"] for process in healthy]
    assert [step["norms"] for step in found[0]["steps"]] == [None] * 4
    assert [process["hooks"] for process in found] == [0, 0]
    assert ["create TrainingMonitor in all of them" in message for message in found[0]["messages"]] == [True]


def test_training_goes_on_where_not_every_process_can_vote_on_a_step(tmp_path: Path) -> None:
    ended = run_processes(SCENARIOS, "without_votes", tmp_path)
    assert [process.code for process in ended] == [0, 0], "\n".join(process.errors for process in ended)
    for case, steps in (("only_first", [4, 4]), ("uneven", [6, 4])):
        found = [process.found[case] for process in ended]
        assert [process["proceeded"] for process in found] == [[True] * count for count in steps]
        assert [len(process["messages"]) for process in found] == [1, 0]  # the first one says it, once
    reasons = {case: ended[0].found[case]["messages"][0] for case in ("only_first", "uneven")}
    assert "not every process has a monitor" in reasons["only_first"]
    assert "(join)" in reasons["uneven"]


def test_a_process_that_gives_up_leaves_the_others_measuring(healthy: list[dict[str, Any]]) -> None:
    mine, other = (found["given_up_by_one"]["steps"] for found in healthy)
    for one, two in zip(mine, other, strict=True):
        assert one["norms"] == pytest.approx([one["own"], two["own"]], rel=1e-6)
        assert two["norms"] is None


def test_a_later_spread_of_the_same_model_finds_the_hook_in_place(healthy: list[dict[str, Any]]) -> None:
    mine, other = (found["given_up_by_one"]["a_later_one"] for found in healthy)
    for one, two in zip(mine[1:], other[1:], strict=True):
        assert one["norms"] == two["norms"] == pytest.approx([one["own"], two["own"]], rel=1e-6)


def test_copies_and_files_leave_the_monitor_out_also_after_its_end(healthy: list[dict[str, Any]]) -> None:
    for found in healthy:
        assert found["copied"] == {"driven": False, "alike": [True] * 4, "hooked": [True] * 5}


def test_a_process_that_has_run_out_of_batches_does_not_hold_up_the_others(healthy: list[dict[str, Any]]) -> None:
    # How many of the norms are above 0: none in the first step, both, then that of the first process alone.
    assert [found["uneven"] for found in healthy] == [[0, 2, 2, 1, 1], [0, 2, 2]]


def test_the_monitor_logs_sigma_squared_and_the_noise_scale_of_the_workers(
    healthy: list[dict[str, Any]], healthy_folder: Path
) -> None:
    assert not (healthy_folder / "healthy_1.jsonl").exists()
    events = lines_of((healthy_folder / "healthy_0.jsonl").read_bytes())
    sources = [event["source"] for event in events if event.get("signal") == "sigma_sq"]
    assert sources[-1] == "workers"
    metrics = [event for event in events if event["event"] == "METRICS"]
    scale = GradientNoiseScale()
    for record, (own, _, mean) in zip(metrics[1:], _steps(healthy, "plain")[1:], strict=True):
        assert record["sigma_sq"] == pytest.approx(np.var(own), rel=1e-4)
        expected = scale.update(own, mean)
        assert record.get("noise_scale", math.nan) == pytest.approx(expected, rel=1e-4, nan_ok=True)
    assert events[-1]["event"] == "EXPERIMENT_SUCCESS"


def _logged_losses(log: Path) -> list[float]:
    events = lines_of(log.read_bytes())
    return [event["training_loss"] for event in events if event["event"] == "METRICS"]


def test_the_loss_is_the_mean_over_the_workers_and_the_log_says_so(
    healthy: list[dict[str, Any]], healthy_folder: Path
) -> None:
    mine, other = (found["monitored"] for found in healthy)
    means = [(one + two) / 2 for one, two in zip(mine, other, strict=True)]
    assert mine[1] != pytest.approx(means[1], rel=0.01)
    logged = _logged_losses(healthy_folder / "healthy_0.jsonl")
    assert logged == pytest.approx([mine[0], *means[1:]], rel=1e-5)  # they agree in the first step
    events = lines_of((healthy_folder / "healthy_0.jsonl").read_bytes())
    sources = [(event["step"], event["source"]) for event in events if event.get("signal") == "training_loss"]
    assert sources == [(1, "first worker"), (2, "mean over the workers")]


@pytest.mark.parametrize("how", ["error", "close", "forget"])
def test_a_process_that_goes_on_without_its_monitor_holds_up_no_training(
    healthy: list[dict[str, Any]], healthy_folder: Path, how: str
) -> None:
    mine, other = (found[how] for found in healthy)
    assert mine["same"] and other["same"]
    logged = _logged_losses(healthy_folder / f"left_{how}.jsonl")
    assert len(logged) == 8
    means = [(one + two) / 2 for one, two in zip(mine["losses"], other["losses"], strict=False)]
    steps = slice(1, 4) if how != "error" else slice(1, 2)
    assert logged[steps] == pytest.approx(means[steps], rel=1e-5)
    assert logged[5:] == pytest.approx(mine["losses"][5:], rel=1e-5)  # of those that report one


@pytest.mark.parametrize("how", ["error_sync", "error_policy", "error_before_policy"])
def test_an_error_in_one_monitor_keeps_no_other_waiting_for_its_vote(healthy: list[dict[str, Any]], how: str) -> None:
    mine, other = (found[how] for found in healthy)
    assert mine["same"] and other["same"]
    assert len(mine["losses"]) == len(other["losses"]) == 8


def test_the_exchange_of_losses_waits_for_a_lost_peer_as_long_as_the_training_does(tmp_path: Path) -> None:
    store, patience = (tmp_path / "store").as_uri(), timedelta(seconds=7)
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1, timeout=patience)
    own = LossExchange(dist.distributed_c10d._get_default_group(), lambda: False)._group
    assert own._get_backend(torch.device("cpu")).options._timeout == patience
    dist.destroy_process_group()


@pytest.mark.parametrize(("timeout_s", "wait_s"), [(12, 4.0), (1800, 30.0)])
def test_the_wait_for_the_other_monitors_ends_before_the_training_would(
    timeout_s: int, wait_s: float, tmp_path: Path
) -> None:
    store, timeout = (tmp_path / "store").as_uri(), timedelta(seconds=timeout_s)
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1, timeout=timeout)
    assert patience_s(dist.distributed_c10d._get_default_group()) == wait_s
    dist.destroy_process_group()


def test_a_model_whose_process_group_is_gone_is_refused_in_one_line(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=(tmp_path / "store").as_uri(), rank=0, world_size=1)
    model = DistributedDataParallel(nn.Linear(2, 1))
    assert isinstance(dispersion_source(model), MicroBatchDispersion)  # a single worker has no variance
    dist.destroy_process_group()
    with pytest.raises(UserError, match=r"call torch\.distributed\.init_process_group first") as caught:
        dispersion_source(model)
    assert "\n" not in str(caught.value)


# -- fully_shard ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["sharded", "sharded_accumulated", "sharded_root_empty"])
def test_workers_of_a_sharded_model_are_told_apart_from_the_third_step_on(
    healthy: list[dict[str, Any]], scenario: str
) -> None:
    steps = _steps(healthy, scenario)
    assert [norms for _, norms, _ in steps[:2]] == [None, None]
    for own, norms, _ in steps[2:]:
        assert norms == pytest.approx(own, rel=1e-6)


def test_an_average_over_those_who_still_train_is_that_of_torch(healthy: list[dict[str, Any]]) -> None:
    assert [found["uneven_alike"] for found in healthy] == [True, True]


SHARDED = ["sharded", "sharded_accumulated", "sharded_root_empty", "sharded_in_part", "ignored", "tensor_parallel"]


@pytest.mark.parametrize("scenario", SHARDED)
def test_the_global_norm_of_a_sharded_model_is_that_of_the_whole_gradient(
    healthy: list[dict[str, Any]], scenario: str
) -> None:
    for found in healthy:
        for step in found[scenario]["steps"]:
            assert step["total"] == pytest.approx(step["expected"], rel=1e-5)


def test_a_sample_of_a_sharded_model_has_as_many_entries_as_asked_for_of_each_processs_part(
    healthy: list[dict[str, Any]],
) -> None:
    for found in (process["sampled"]["model"] for process in healthy):
        tensors = 6
        assert {*found["taken"]} == {"update", "update_alignment"}
        for taken in found["taken"].values():
            assert 0.8 * found["asked"] <= taken <= found["asked"] + tensors
        assert all(size > 0.0 for size in found["updates"][1:])
        assert [*map(len, found["seen"])] == [1, 1, 2, 2]  # the alignment needs two changes


def test_a_process_without_a_part_of_the_sharded_model_measures_none_of_its_updates_and_gives_nothing_up(
    healthy: list[dict[str, Any]],
) -> None:
    first, second = (process["sampled"] for process in healthy)
    assert (first["small"]["part"], second["small"]["part"]) == (7, 0)
    assert second["small"]["updates"] == [None] * 4
    assert second["small"]["seen"] == [{}] * 4
    for found in (first, second):
        assert found["messages"] == []
        assert [*map(sorted, (found["small"]["names"], found["small"]["auto"]))] == [["update", "update_alignment"]] * 2


@pytest.mark.slow
def test_the_loss_of_replicas_of_a_sharded_model_is_the_mean_over_all_of_them(tmp_path: Path) -> None:
    ended = run_processes(SCENARIOS, "replicas", tmp_path, processes=4)
    assert [process.code for process in ended] == [0] * 4, "\n".join(process.errors for process in ended)
    means = np.mean([process.found["losses"] for process in ended], axis=0)
    logged = [record["training_loss"] for record in events_of(tmp_path / "replicas.jsonl", "METRICS")]
    assert logged[2:] == pytest.approx(means[2:], rel=1e-5)


@pytest.mark.parametrize("scenario", ["left_sharded", "failed_sharded", "failed_late_sharded"])
def test_a_process_whose_monitor_has_ended_still_adds_its_part_of_the_gradient(
    healthy: list[dict[str, Any]], scenario: str
) -> None:
    first, _ = healthy
    norms = first[scenario]["norms"]
    assert len(norms) == 4 and all(norm > 0.0 for norm in norms)
    assert norms == first["left_sharded"]["norms"]  # each of them once, of the same step


def test_under_fsdp_1_no_process_waits_for_another_and_it_is_said_that_a_part_is_watched(
    healthy: list[dict[str, Any]],
) -> None:
    first, second = (found["left_flat"] for found in healthy)
    assert len(first["norms"]) == 4 and all(norm > 0.0 for norm in first["norms"])
    assert first["remarks"] == ["in part"]
    assert [len(found["messages"]) for found in (first, second)] == [1, 0]


# -- faults -----------------------------------------------------------------------------------------------------------


def test_a_slow_network_delays_every_bucket_and_nothing_else(healthy: list[dict[str, Any]]) -> None:
    for found in healthy:
        scenario = found["slow_network"]
        assert all(slow == twin for slow, twin in scenario["losses"])
        assert scenario["same_weights"]
        steps = [step for step, _ in scenario["waits"]]
        assert sorted({*steps}) == [3, 4, 5]  # the fault was on in these
        assert len(steps) == 3 * scenario["buckets"] > 3
        assert all(1e-3 <= seconds < 0.05 for _, seconds in scenario["waits"])


def test_a_killed_worker_appears_in_lambda(killed: list[Ended]) -> None:
    survivor, victim = killed
    assert victim.killed
    assert survivor.code == 0, survivor.errors
    assert survivor.found["lambda"] == 100.0  # one event in the first 36 seconds
    assert survivor.found["worker"] == 1


def test_the_survivors_log_ends_with_the_worker_lost(killed: list[Ended], killed_folder: Path) -> None:
    events = lines_of((killed_folder / "survivor.jsonl").read_bytes())
    step = killed[0].found["step"]
    assert events[-1] == {"event": "EXPERIMENT_FAILURE", "step": step, "reason": "WORKER_LOST"}
    (event,) = [event for event in events if event["event"] == "HARDWARE_EVENT"]
    assert (event["kind"], event["worker"], event["step"]) == ("fatal", 1, step)
    *before, last = [event for event in events if event["event"] == "METRICS"]
    assert [record["lambda"] for record in before] == [0.0] * len(before)
    assert last["lambda"] > 0.0
    assert last["active_workers"] == [0]
    assert read_log(killed_folder / "survivor.jsonl").terminal == events[-1]


def test_two_lines_without_a_context_are_enough_for_the_worker_lost(tmp_path: Path) -> None:
    survivor, victim = run_processes(SCENARIOS, "killed_in_two_lines", tmp_path)
    assert victim.killed and survivor.code != 0
    assert "Traceback" in survivor.errors  # Python's own report comes as well
    events = lines_of((tmp_path / "survivor.jsonl").read_bytes())
    assert events[-1] == {"event": "EXPERIMENT_FAILURE", "step": 5, "reason": "WORKER_LOST"}
    (event,) = [event for event in events if event["event"] == "HARDWARE_EVENT"]
    assert (event["kind"], event["worker"], event["step"]) == ("fatal", 1, 5)


# -- recognising a death ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        WorkerLost(3),
        RuntimeError("[pair.cc:553] Connection closed by peer [127.0.0.1]:19890. This is typically caused by ..."),
        RuntimeError("Read error [127.0.0.1]:16296: Connection reset by peer."),
        dist.DistBackendError("NCCL error in: ProcessGroupNCCL.cpp"),
        dist.DistNetworkError("The client socket has failed to connect"),
    ],
)
def test_what_torch_raises_when_a_peer_dies_is_recognised(error: Exception) -> None:
    assert WorkerLost.caused(error)
    behind = ValueError("the loop gave up")
    behind.__cause__ = error
    assert WorkerLost.caused(behind)


@pytest.mark.parametrize(
    "error", [None, KeyboardInterrupt(), RuntimeError("CUDA out of memory"), OSError("Connection reset by peer")]
)
def test_other_ends_are_not_taken_for_a_death(error: BaseException | None) -> None:
    assert not WorkerLost.caused(error)


def test_who_died_is_said_where_it_is_known() -> None:
    error = RuntimeError("the loop gave up")
    assert WorkerLost.worker_of(error) == -1
    error.__cause__ = WorkerLost(3)
    assert WorkerLost.worker_of(error) == 3
    assert str(error.__cause__) == "worker 3 is lost"
