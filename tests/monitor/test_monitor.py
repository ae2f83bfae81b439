"""The monitor on real gradients: what it measures, when it warns, and that it never breaks what it watches."""

from __future__ import annotations

import copy
import io
import json
import logging
import math
import pickle
import signal
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rmetric.detectors import StreamingDetector, make_detector
from rmetric.errors import UserError
from rmetric.evaluation.truth import truth_of
from rmetric.measurements import Observation
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.alerts import Alert
from rmetric.monitor.ending import Failure
from rmetric.monitor.record_interval import CHECKED
from rmetric.monitor.repair import GoBack, Policy, SkipUpdate, TrainingStopped
from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.since_record import SinceRecord
from tests.forked import needs_fork, run_forked
from tests.helpers import lines_of
from tests.live.live import make_live_run, read, train, watched
from tests.monitor.common import Waits, backward, batch_of, measurer_of, small_loss, small_training
from tests.monitor.repair.common import hooks_of

ALL = ("numerics", "robust_z", "r_metric", "loss_spike", "grad_norm")


def float64_norm(model: torch.nn.Module) -> float:
    return math.sqrt(sum(float(p.grad.double().square().sum()) for p in model.parameters() if p.grad is not None))


# -- what is measured ------------------------------------------------------------------------------------------------


def test_signals_against_values_worked_out_by_hand_in_double_precision(tmp_path: Path) -> None:
    run = make_live_run(workers=1)
    monitor = watched(run, log=tmp_path / "run.jsonl", update_entries=None)
    norms, updates, losses = [], [], []
    before = [p.detach().double().clone() for p in run.model.parameters()]
    with run.at("gradients", lambda: norms.append(float64_norm(run.model))):
        for _ in range(12):
            losses += train(run, 1)
            now = [p.detach().double().clone() for p in run.model.parameters()]
            changes = torch.cat([(a - b).flatten() for a, b in zip(now, before, strict=True)])
            updates.append(float(changes.square().mean().sqrt()))
            before = now
    monitor.close()
    seen = read(tmp_path / "run.jsonl").observations
    assert seen["grad_norm"] == pytest.approx(norms, rel=1e-5)
    assert seen["training_loss"] == pytest.approx(losses, rel=1e-6)
    assert seen["update_rms"][1:] == pytest.approx(updates[:-1], rel=1e-4)  # the update that led to this step
    assert seen["sigma_sq"][-1] == pytest.approx(np.var(norms[-8:]), rel=1e-4)
    assert seen["uniform_gap"] == pytest.approx(np.array(losses) - math.log(256), abs=1e-5)
    smoothed, drift = losses[0], []
    history = [smoothed]
    for loss in losses[1:]:
        smoothed += 2 / 51 * (loss - smoothed)
        drift.append(smoothed - np.mean(history))
        history.append(smoothed)
    assert seen["delta_l"][1:] == pytest.approx(drift, rel=1e-4, abs=1e-6)


def test_micro_batches_give_the_variance_of_their_own_gradients(tmp_path: Path) -> None:
    run, alone = make_live_run(workers=4), make_live_run(workers=4)
    monitor = watched(run, log=tmp_path / "run.jsonl")
    for step in range(3):
        alone.load_state_dict(run.state_dict())
        alone.step = step + 1
        batch = batch_of(alone)
        norms = []
        for worker in range(4):
            alone.optimizer.zero_grad()
            part = batch.part(worker, 4)
            alone.model(input_ids=part.input_ids, labels=part.labels).loss.backward()
            norms.append(float64_norm(alone.model))
        train(run, 1)
    monitor.close()
    log = read(tmp_path / "run.jsonl")
    assert log.observations["sigma_sq"][-1] == pytest.approx(np.var(norms), rel=1e-4)
    sources = [event for event in log.events if event["event"] == "SIGNAL_SOURCE" and event["signal"] == "sigma_sq"]
    assert sources[-1]["source"] == "micro_batches"


def test_validation_losses_replace_the_training_loss_in_the_drift(tmp_path: Path) -> None:
    run = make_live_run()
    with watched(run, log=tmp_path / "run.jsonl") as monitor:
        for loss in (3.0, 2.0, 4.0):
            train(run, 2)
            monitor.validation(torch.tensor(loss))
        train(run, 1)
    log = read(tmp_path / "run.jsonl")
    assert log.observations["validation_loss"][[2, 4, 6]].tolist() == [3.0, 2.0, 4.0]
    assert log.observations["delta_l"][[4, 5, 6]].tolist() == [-1.0, -1.0, 1.5]
    steps = {event["step"]: event["source"] for event in log.events if event.get("signal") == "delta_l"}
    assert steps == {1: "smoothed training loss", 5: "validation loss"}


@pytest.mark.slow
def test_every_tensors_gradient_norm_is_logged_now_and_then(tmp_path: Path) -> None:
    run = make_live_run(rows=1, length=4)
    with watched(run, log=tmp_path / "run.jsonl", detectors=("numerics",)):
        train(run, 100)
    [event] = [event for event in read(tmp_path / "run.jsonl").events if event["event"] == "TENSOR_GRAD_NORMS"]
    assert event["step"] == 100
    assert {*event["norms"]} == {name for name, _ in run.model.named_parameters()}
    total = math.sqrt(sum(value**2 for value in event["norms"].values()))
    assert total == pytest.approx(read(tmp_path / "run.jsonl").observations["grad_norm"][-1], rel=1e-5)


def test_the_slowest_steps_make_lambda(tmp_path: Path) -> None:
    times = iter([*np.arange(0, 30) * 0.1, 40.0, *(40.0 + np.arange(1, 20) * 0.1)])
    run = make_live_run(rows=1, length=4)
    with watched(run, log=tmp_path / "run.jsonl", clock=lambda: next(times)):
        train(run, 40)
    log = read(tmp_path / "run.jsonl")
    [event] = [event for event in log.events if event["event"] == "HARDWARE_EVENT"]
    assert (event["step"], event["component"]) == (31, "stall")
    assert log.observations["lambda"][29] == 0.0
    assert log.observations["lambda"][30] > 0.0


# -- when it warns ---------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_healthy_run_of_400_steps_gives_no_alert_at_the_defaults(ticking) -> None:
    """By a clock of its own: whatever else begins to use this machine half-way makes steps slow in earnest."""
    alerts: list[Alert] = []
    run = make_live_run(rows=16, length=64)
    with watched(run, on_alert=alerts.append, clock=ticking()) as monitor:
        losses = train(run, 400)
    assert not alerts and not monitor.alerts
    assert losses[-1] < 2.6  # it did learn something


def flip(tensor: torch.Tensor, index: int, bit: int) -> None:
    tensor.view(torch.int32).view(-1)[index] ^= 1 << bit


@pytest.fixture(scope="module")
def trained() -> dict[str, Any]:
    """A model that has learned something, and its monitor's state."""
    run = make_live_run(rows=8, length=32)
    monitor = watched(run)
    train(run, 80)
    state = {"run": run.state_dict(), "monitor": monitor.state_dict()}
    monitor.detach()
    return state


def resumed(trained: dict[str, Any], **options: Any) -> tuple[Any, TrainingMonitor, list[Alert]]:
    alerts: list[Alert] = []
    run = make_live_run(rows=8, length=32).load_state_dict(trained["run"])
    monitor = watched(run, on_alert=alerts.append, **options)
    monitor.load_state_dict(trained["monitor"])
    return run, monitor, alerts


def named(run: Any, name: str) -> torch.nn.Parameter:
    return next(p for full, p in run.model.named_parameters() if name in full)


@pytest.mark.slow
def test_a_flipped_bit_in_a_query_weight_is_a_nan_gradient_under_a_finite_loss(trained: dict[str, Any]) -> None:
    run, monitor, alerts = resumed(trained)
    weight = named(run, "layers.0.self_attn.q_proj").data
    flip(weight, int(weight.abs().argmax()), 30)
    loss = train(run, 1)[0]
    monitor.close()
    assert math.isfinite(loss)
    assert next(alert.detector for alert in alerts) == "numerics"
    assert "not finite" in alerts[0].message and "the loss is still finite" in alerts[0].message
    assert monitor.last is not None and monitor.last["non_finite_count"] > 0


def test_an_output_projection_that_answers_alike_is_a_gradient_of_zero(trained: dict[str, Any]) -> None:
    run, monitor, alerts = resumed(trained)
    with torch.no_grad():
        named(run, "lm_head").zero_()
        named(run, "model.norm").zero_()
    loss = train(run, 1)[0]
    monitor.close()
    assert loss == pytest.approx(math.log(256), abs=1e-6)
    assert "numerics" in [alert.detector for alert in alerts]
    message = next(alert.message for alert in alerts if alert.detector == "numerics")
    assert "exactly 0" in message and "ln(256)" in message


def test_a_gradient_that_clipping_turns_to_zero_under_a_normal_loss(trained: dict[str, Any]) -> None:
    run, monitor, alerts = resumed(trained)
    gradient = named(run, "mlp.up_proj")

    def overflow() -> None:
        gradient.grad.view(-1)[0] = 1e30  # finite, but its square is not

    before = [p.detach().clone() for p in run.model.parameters()]
    with run.at("gradients", overflow):
        loss = train(run, 1)[0]
    monitor.close()
    assert math.isfinite(loss)
    assert next(alert.detector for alert in alerts) == "numerics"
    assert "mlp.up_proj" in alerts[0].message
    moved = max(float((a.detach() - b).abs().max()) for a, b in zip(run.model.parameters(), before, strict=True))
    assert moved < 2e-3  # nothing that a monitor of the loss alone would see


def test_values_arrive_one_step_late_and_at_once_with_sync(trained: dict[str, Any]) -> None:
    for sync, expected in ((False, [80, 81]), (True, [81, 82])):
        run, monitor, _ = resumed(trained, sync=sync)
        seen = []
        for _ in range(2):
            train(run, 1)
            seen.append(monitor.last.step if monitor.last else 80)
        monitor.close()
        assert seen == expected
        assert monitor.last is not None and monitor.last.step == 82


def test_with_sync_a_broken_update_is_vetoed_and_the_weights_stay_clean(trained: dict[str, Any]) -> None:
    run, monitor, _ = resumed(trained, sync=True)
    before = {name: p.detach().clone() for name, p in run.model.named_parameters()}

    def poison() -> None:
        named(run, "k_proj").grad.view(-1)[0] = math.nan

    with run.at("gradients", poison):
        train(run, 1)
    assert all(torch.equal(before[name], p) for name, p in run.model.named_parameters())
    train(run, 1)
    assert not all(torch.equal(before[name], p) for name, p in run.model.named_parameters())
    monitor.close()


def test_alerts_are_episodes(tmp_path: Path) -> None:
    calls: list[Alert] = []
    run = make_live_run(rows=1, length=4)
    with (
        watched(run, log=tmp_path / "run.jsonl", on_alert=calls.append, detectors=("numerics",)),
        run.at("gradients", lambda: named(run, "norm").grad.fill_(math.inf)),
    ):
        train(run, 5)
    assert [call.step for call in calls] == [1]
    events = [event for event in read(tmp_path / "run.jsonl").events if event["event"] == "ALERT"]
    assert [(event["step"], event["detector"], event["non_finite"]) for event in events] == [(1, "numerics", ["score"])]
    assert calls[0].score == math.inf


def overflowing(run: Any) -> Any:
    """Makes one gradient infinite in each backward pass, as a scale that is too large does."""

    def call(worker: int) -> None:
        parameter = named(run, "norm")
        hook = parameter.register_hook(lambda gradient: (hook.remove(), torch.full_like(gradient, math.inf))[1])

    return call


def test_a_scaler_searching_its_scale_is_no_alarm_but_one_that_never_finds_it_is() -> None:
    run = make_live_run(rows=1, length=4)
    alerts: list[Alert] = []
    run.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with watched(run, on_alert=alerts.append, scaler=run.scaler, detectors=("numerics",)) as monitor:
        with run.at("micro_batch", overflowing(run)):
            train(run, 5)
        train(run, 2)
        assert run.scaler.get_scale() == 1024.0 / 2**5 and not alerts
        with run.at("micro_batch", overflowing(run)):
            train(run, 12)
        assert [alert.step for alert in alerts] == [16]
        assert monitor.enabled


# -- the log ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_replaying_the_log_gives_the_same_alerts_and_the_same_r(tmp_path: Path) -> None:
    run = make_live_run()
    with watched(run, log=tmp_path / "run.jsonl", detectors=ALL) as monitor:
        for _ in range(4):
            train(run, 20)
            monitor.validation(run.held_out_loss("validation"))
        with run.at("gradients", lambda: named(run, "norm").grad.fill_(math.inf)):
            train(run, 2)
        train(run, 5)
    log = read(tmp_path / "run.jsonl")
    assert log.alerts == monitor.alerts and {"numerics", "r_metric"} <= {*log.alerts}
    for name in ALL:
        detector = make_detector(name)
        above = log.observations.step[detector.score_run(log.observations) > detector.threshold]
        assert (int(above[0]) if len(above) else None) == log.alerts.get(name)
    r = make_detector("r_metric").score_run(log.observations)
    assert log.verdicts["r_metric"] == pytest.approx(r, rel=1e-6)


def test_lines_are_strict_json_and_start_and_end_properly(tmp_path: Path) -> None:
    run = make_live_run(rows=1, length=4)
    with watched(run, log=tmp_path / "run.jsonl", config={"experiment_id": "mine", "seed": 3}) as monitor:
        monitor.note("COMMENT", text="hello")
        train(run, 3)
    lines = lines_of((tmp_path / "run.jsonl").read_bytes())
    assert lines[0]["event"] == "EXPERIMENT_START"
    assert lines[0]["config"]["experiment_id"] == "mine" and lines[0]["config"]["backend"] == "torch"
    assert lines[1] == {"event": "COMMENT", "step": 1, "text": "hello"}
    assert lines[-1] == {"event": "EXPERIMENT_SUCCESS", "step": 3}


def test_a_run_that_ends_with_a_nan_has_failed(tmp_path: Path) -> None:
    run = make_live_run(rows=1, length=4)
    with watched(run, log=tmp_path / "run.jsonl"):
        train(run, 2)
        with torch.no_grad():
            named(run, "lm_head").fill_(math.nan)
        train(run, 2)
    truth = truth_of(read(tmp_path / "run.jsonl"))
    assert (truth.kind, truth.failure_step, truth.reason) == ("failed", 3, "NAN_LOSS")


CONNECTION = "Caught NewConnectionError in DataLoader worker process 0. Connection refused"
"""What a single process hears of a lost connection: no worker of the training is lost."""


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError(CONNECTION)], ids=["Ctrl-C", "connection"])
def test_an_exception_leaves_a_valid_incomplete_log(error: BaseException, tmp_path: Path) -> None:
    run = make_live_run(rows=1, length=4)
    with pytest.raises(type(error)), watched(run, log=tmp_path / "run.jsonl"):
        train(run, 3)
        raise error
    log = read(tmp_path / "run.jsonl")
    assert log.observations.step.tolist() == [1, 2, 3]
    assert truth_of(log).kind == "incomplete"


SIGNALLED = """
import os, signal, sys, torch, rmetric
{before}
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
monitor = rmetric.TrainingMonitor(model, optimizer, log="run.jsonl")
for step in range(5):
    loss = model(torch.ones(2, 4)).square().mean()
    loss.backward()
    monitor.step(loss)
    optimizer.step()
    optimizer.zero_grad()
os.kill(os.getpid(), signal.{end})
"""
EXITS = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))"  # as docs/monitor.md says
SIGNALS = {("", "SIGKILL"): -signal.SIGKILL, ("", "SIGTERM"): -signal.SIGTERM, (EXITS, "SIGTERM"): 143}
"""What is done before the training and the signal, and the exit status."""


@pytest.mark.slow
@needs_fork
def test_a_signal_loses_at_most_the_step_on_its_way(tmp_path_factory: pytest.TempPathFactory) -> None:
    folders = {case: tmp_path_factory.mktemp("signal") for case in SIGNALS}
    ended = run_forked({folder: SIGNALLED.format(before=case[0], end=case[1]) for case, folder in folders.items()})
    for case, code in SIGNALS.items():
        done, steps = ended[folders[case]], 5 if case[0] else 4
        assert done.code == code, (case, done.errors)
        assert read(done.folder / "run.jsonl").observations.step.tolist() == [*range(1, steps + 1)], case


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_training_goes_on_when_the_disk_is_full(caplog: pytest.LogCaptureFixture) -> None:
    run = make_live_run(rows=1, length=4)
    with caplog.at_level(logging.WARNING, "rmetric"), watched(run, log="/dev/full") as monitor:
        train(run, 5)
    assert len(caplog.records) == 1
    assert monitor.last is not None and monitor.last.step == 5


# -- resume ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("record_every", [pytest.param(1, marks=pytest.mark.long), 4])
def test_a_resumed_run_writes_the_same_bytes_as_one_never_interrupted(
    tmp_path: Path, ticking: Any, record_every: int
) -> None:
    def monitored(run: Any, name: str) -> TrainingMonitor:
        return watched(run, log=tmp_path / name, detectors=ALL, clock=ticking(), record_every=record_every)

    straight = make_live_run(workers=2)
    with monitored(straight, "straight.jsonl") as monitor:
        train(straight, 45)
        monitor.validation(2.5)
        monitor.state_dict()  # a checkpoint: its time counts for no step
        train(straight, 45)
    first = make_live_run(workers=2)
    monitor = monitored(first, "resumed.jsonl")
    train(first, 45)
    monitor.validation(2.5)
    buffer = io.BytesIO()
    torch.save({"run": first.state_dict(), "monitor": monitor.state_dict()}, buffer)
    train(first, 7)  # lost with the crash
    buffer.seek(0)
    state = torch.load(buffer, weights_only=True)
    second = make_live_run(workers=2).load_state_dict(state["run"])
    with monitored(second, "resumed.jsonl") as monitor:
        monitor.load_state_dict(state["monitor"])
        train(second, 45)
    assert (tmp_path / "resumed.jsonl").read_bytes() == (tmp_path / "straight.jsonl").read_bytes()


def test_a_run_that_is_resumed_with_other_sinks_cuts_no_neighbours_log(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    with watched(make_live_run(rows=1, length=4), log=log) as monitor:
        monitor.step(2.5)
        monitor.step(2.5)
    before = log.read_bytes()
    run = make_live_run(rows=1, length=4)
    monitor = watched(run, log=log, announce=True)
    train(run, 1)
    state = monitor.state_dict()
    monitor.detach()
    with watched(run, log=log, announce=False) as monitor:
        monitor.load_state_dict(state)
        train(run, 1)
    assert log.read_bytes() == before
    assert read(tmp_path / "run-2.jsonl").last_step == 2


@pytest.mark.parametrize("leave", [TrainingMonitor.close, TrainingMonitor.detach])
def test_a_state_told_after_the_end_is_that_of_the_last_step(
    leave: Callable[[TrainingMonitor], None], tmp_path: Path
) -> None:
    log, run = tmp_path / "run.jsonl", make_live_run(rows=1, length=4)
    first = watched(run, log=log)
    train(run, 2)
    before = first.state_dict()
    first.validation(2.5)
    leave(first)
    state = first.state_dict()
    assert state["validation"] == [(2, 2.5)]  # those are judged at the end, and belong to the next record
    assert state["history"]["detectors"] == before["history"]["detectors"]
    with watched(run, log=log) as resumed:
        resumed.load_state_dict(state)
        train(run, 2)
    assert read(log).observations.step.tolist() == [1, 2, 3, 4]
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


def test_an_empty_state_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    run = make_live_run(rows=1, length=4)
    with watched(run) as monitor:
        monitor.load_state_dict({})
        train(run, 1)
    [message] = caplog.messages
    assert "an empty state" in message


def test_a_state_of_something_else_is_an_error_with_the_key_to_pass() -> None:
    run = make_live_run(rows=1, length=4)
    monitor = watched(run)
    train(run, 2)
    state = monitor.state_dict()
    monitor.detach()
    resumed = watched(run)
    with pytest.raises(UserError, match=r"not the state of a monitor; pass checkpoint\['watch'\]"):
        resumed.load_state_dict({"model": run.model.state_dict(), "watch": state})
    for other in (run.model.state_dict(), [1], [], None):
        with pytest.raises(UserError, match=r"pass what monitor.state_dict\(\) has returned"):
            resumed.load_state_dict(other)  # type: ignore[arg-type]
    resumed.load_state_dict(state)
    assert resumed.enabled and resumed.step_number == 2
    resumed.detach()


def test_a_state_that_comes_after_the_first_step_is_passed_by_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    run = make_live_run(rows=1, length=4)
    with watched(run) as monitor:
        train(run, 2)
        state = monitor.state_dict()
        train(run, 1)
        monitor.load_state_dict(state)
        assert monitor.step_number == 3
        train(run, 1)
    [message] = caplog.messages
    assert "load_state_dict(state) is called after the first monitor.step(loss)" in message
    assert monitor.last is not None and monitor.last.step == 4


def test_a_state_of_other_detectors_ends_the_monitor_and_not_the_training(caplog: pytest.LogCaptureFixture) -> None:
    run = make_live_run(rows=1, length=4)
    with watched(run, detectors=("numerics", "robust_z")) as monitor:
        train(run, 2)
        state = monitor.state_dict()
    resumed = watched(run, detectors=("numerics", "grad_norm"))
    with caplog.at_level(logging.WARNING, "rmetric"):
        resumed.load_state_dict(state)
        train(run, 2)
    assert not resumed.enabled
    message = caplog.records[-1].message
    assert message.startswith("the monitor stops at step 2, training goes on")
    assert "watched by numerics, robust_z, this one by grad_norm, numerics; resume with" in message


@pytest.mark.parametrize("watches", ["r_metric", "r_metric_robust"])
def test_a_detector_that_cannot_go_on_from_its_state_begins_anew_and_the_rest_goes_on(
    watches: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, log = make_live_run(rows=1, length=4), tmp_path / "run.jsonl"
    monitor = watched(run, log=log, detectors=("numerics", watches))
    train(run, 4)
    state = monitor.state_dict()
    monitor.detach()
    of_another_version = state["history"]["detectors"]["detectors"][watches]
    state["loop_invariants"]["_invariants"].pop()
    of_another_version.update(threshold=-1.0, _metric={"of_before": 1})  # with that threshold each record would alert
    with watched(run, log=log, detectors=("numerics", watches)) as resumed:
        resumed.load_state_dict(state)
        train(run, 2)
        resumed.step(math.nan)
    told = [message for message in caplog.messages if "state in the checkpoint is that of another version" in message]
    assert [message.partition(" begins anew")[0] for message in told] == [
        f"the detector {watches}",
        "the check of the loop",
    ]
    assert read(log).observations.step.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert resumed.alerts["numerics"] == 7
    alerts = [event for event in lines_of(log.read_bytes()) if event.get("detector") == watches]
    assert alerts and min(event["threshold"] for event in alerts) > 0.0


# -- it never breaks a run -------------------------------------------------------------------------------------------


class Broken(StreamingDetector):
    name = "broken"
    threshold = 0.0

    def __init__(self) -> None:
        pass

    def update(self, observation: Observation) -> float:
        raise ZeroDivisionError("as detectors do")


def test_an_error_inside_is_told_once_and_ends_the_monitor(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    run, twin = make_live_run(), make_live_run()
    with caplog.at_level(logging.WARNING, "rmetric"):
        with watched(run, detectors=(Broken(),), log=tmp_path / "run.jsonl") as monitor:
            losses = train(run, 5)
        assert not monitor.enabled
    assert losses == train(twin, 5)
    [record] = caplog.records
    assert "ZeroDivisionError" in record.message and "training goes on" in record.message
    assert all(not p._backward_hooks for p in run.model.parameters())


def test_a_score_that_is_no_number_is_told_with_the_detector_and_its_file(caplog: pytest.LogCaptureFixture) -> None:
    class Silent(Broken):
        def update(self, observation: Observation) -> float:
            return None  # type: ignore[return-value]

    run = make_live_run(rows=1, length=4)
    with caplog.at_level(logging.WARNING, "rmetric"), watched(run, detectors=(Silent(),)):
        train(run, 3)
    [record] = caplog.records
    assert f"plugin {__file__}: detector broken gives None for the record at step 1 " in record.message


def test_a_detector_whose_state_cannot_be_told_ends_the_monitor_and_no_checkpoint() -> None:
    class Stateful(Broken):
        def __init__(self) -> None:
            self.stream = iter([1])

        def update(self, observation: Observation) -> float:
            return 0.0

    run = make_live_run(rows=1, length=4)
    monitor = watched(run, detectors=(Stateful(),))
    train(run, 2)
    assert monitor.state_dict() == {}
    assert not monitor.enabled
    resumed = watched(make_live_run(rows=1, length=4))
    resumed.load_state_dict({})
    assert resumed.enabled and resumed.step_number == 0
    resumed.detach()


def test_an_error_of_the_callback_ends_the_calls_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    run = make_live_run(rows=1, length=4)
    with (
        caplog.at_level(logging.WARNING, "rmetric"),
        watched(run, on_alert=lambda alert: 1 / 0, detectors=("numerics",)) as monitor,
        run.at("gradients", lambda: named(run, "norm").grad.fill_(math.inf)),
    ):
        train(run, 3)
        assert monitor.enabled
    assert monitor.alerts == {"numerics": 1}
    assert len(caplog.records) == 1


def test_watching_changes_no_bit_of_the_training() -> None:
    run, twin = make_live_run(workers=2), make_live_run(workers=2)
    with watched(run, update_entries=None):
        losses = train(run, 10)
    assert losses == train(twin, 10)
    assert all(torch.equal(a, b) for a, b in zip(run.model.parameters(), twin.model.parameters(), strict=True))


def test_a_number_keeps_its_digits_whatever_the_defaults_of_torch_are() -> None:
    model, optimizer = small_training()
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device("meta")
    try:
        with TrainingMonitor(model, optimizer, hardware=False, announce=False) as monitor:
            monitor.validation(2.345678)
            monitor.reward(0.123456)
            monitor.step(2.345678)
    finally:
        torch.set_default_dtype(before)
        torch.set_default_device(None)
    names = ("training_loss", "validation_loss", "reward")
    assert [monitor.last[name] for name in names] == [2.345678, 2.345678, 0.123456]


def test_a_failure_that_is_none_ends_the_monitor_and_not_the_program(caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer = small_training()
    monitor = TrainingMonitor(model, optimizer, hardware=False, announce=False)
    monitor.close("out of memory")  # type: ignore[arg-type]
    assert "training goes on" in caplog.text and not any(hooks_of(model, optimizer).values())


@pytest.mark.parametrize("loss", [2.5, torch.tensor(2.5), torch.tensor([2.5])])
def test_a_loss_may_be_a_number_or_a_tensor(loss: Any) -> None:
    model = torch.nn.Linear(2, 1)
    with TrainingMonitor(model, torch.optim.SGD(model.parameters(), lr=0.1), hardware=False) as monitor:
        model(torch.ones(1, 2)).sum().backward()
        assert monitor.step(loss)
    assert monitor.last is not None and monitor.last["training_loss"] == 2.5


@pytest.mark.parametrize("kind", [torch.complex64, torch.complex128])
def test_complex_parameters_are_measured_by_both_parts_of_each_number(kind: torch.dtype) -> None:
    torch.manual_seed(0)
    model = torch.nn.ParameterList([torch.randn(4, 3, dtype=kind), torch.randn(3)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with TrainingMonitor(model, optimizer, hardware=False, announce=False, detectors=[], sync=True) as monitor:
        for _ in range(12):
            before = [item.detach().clone() for item in model]
            optimizer.zero_grad()
            for micro_batch in torch.randn(2, 5, 4).to(kind):
                ((micro_batch @ model[0]).abs() + model[1]).square().mean().backward()
            norm = math.sqrt(sum(float(item.grad.abs().square().sum()) for item in model))
            monitor.step(1.0)
            optimizer.step()
        changes = [(new.detach() - old).abs().square().sum() for new, old in zip(model, before, strict=True)]
        monitor.step(1.0)
        assert monitor.enabled and monitor.last is not None
        assert monitor.last["grad_norm"] == pytest.approx(norm, rel=1e-5)
        assert monitor.last["update_rms"] == pytest.approx(math.sqrt(float(sum(changes)) / 27), rel=1e-4)
        assert -1.0 <= monitor.last["grad_agreement"] <= 1.001 and monitor.last["sigma_sq"] >= 0.0


def test_a_step_without_any_gradient_is_not_measured_and_no_alarm() -> None:
    model = torch.nn.Linear(2, 1)
    with TrainingMonitor(model, torch.optim.SGD(model.parameters(), lr=0.1), hardware=False) as monitor:
        monitor.step(1.0)
    assert monitor.last is not None and math.isnan(monitor.last["grad_norm"])
    assert not monitor.alerts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"detectors": ("numeriks",)}, "did you mean"),
        ({"detectors": ("isolation_forest",)}, "cannot watch a run"),
        ({"log": "."}, "is a folder"),
    ],
)
def test_what_the_user_can_mend_is_said_before_training(options: dict[str, Any], message: str) -> None:
    model = torch.nn.Linear(2, 1)
    with pytest.raises(UserError, match=message):
        TrainingMonitor(model, torch.optim.SGD(model.parameters(), lr=0.1), hardware=False, **options)


# -- it waits for nothing --------------------------------------------------------------------------------------------


def test_a_step_fetches_nothing_from_its_own_tensors() -> None:
    run = make_live_run(workers=2)
    measurer = measurer_of(run)
    measurer.measure(1, measurer.computation(1, backward(run, batch_of(run))), 0.1, SinceRecord())
    loss = backward(run, batch_of(run))
    with Waits() as waits:
        pending = measurer.measure(2, measurer.computation(2, loss), 0.1, SinceRecord())
    assert waits.calls == []
    with Waits() as control:  # the mode does see a fetch
        loss.item()
    assert control.calls == ["_local_scalar_dense"]
    numbers = pending.transfer.read()
    assert numbers.scalars["training_loss"] == pytest.approx(float(loss))
    assert "update_rms" in numbers.scalars


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_a_step_makes_no_device_wait() -> None:
    run = make_live_run(workers=2)
    run.model.to("cuda")
    with warnings.catch_warnings(record=True) as waits, TrainingMonitor(run.model, run.optimizer) as monitor:
        warnings.simplefilter("always")
        for step in range(CHECKED + 4):
            loss = backward(run, batch_of(run))
            torch.cuda.set_sync_debug_mode("warn" if step > CHECKED else "default")
            monitor.step(loss)
            torch.cuda.set_sync_debug_mode("default")
            run.optimizer.step()
    assert not [wait for wait in waits if "called a synchronizing" in str(wait.message)]


@pytest.mark.long
def test_nothing_grows_with_the_run() -> None:
    run = make_live_run(rows=1, length=4)
    monitor = watched(run, detectors=ALL)
    sizes = []
    for _ in range(3):
        train(run, 150)
        sizes.append(len(json.dumps(monitor.state_dict()["history"])))
    assert sizes[2] < 1.15 * sizes[1]
    monitor.detach()


def test_sigma_squared_every_third_step_stands_in_the_header_and_is_that_of_every_step(tmp_path: Path) -> None:
    every_step, every_third = tmp_path / "1.jsonl", tmp_path / "3.jsonl"
    for path, every in ((every_step, 1), (every_third, 3)):
        run = make_live_run(workers=2)
        monitor = watched(run, log=path, sigma_sq_every=every)
        train(run, 9)
        monitor.close()
    header = json.loads(every_third.read_text().splitlines()[0])["config"]
    assert header["sigma_sq_every_n_steps"] == 3
    assert "sigma_sq_every_n_steps" not in every_step.read_text()
    exact, kept = read(every_step).observations["sigma_sq"], read(every_third).observations["sigma_sq"]
    assert kept[2:].tolist() == [exact[2]] * 3 + [exact[5]] * 3 + [exact[8]]
    assert read(every_third).observations["grad_norm"].tolist() == read(every_step).observations["grad_norm"].tolist()


def test_a_record_of_every_third_step_is_that_of_a_monitor_that_measures_all(tmp_path: Path, ticking: Any) -> None:
    logs, weights = (tmp_path / "1.jsonl", tmp_path / "3.jsonl"), []
    for path, every in zip(logs, (1, 3), strict=True):
        run = make_live_run(workers=2)
        monitor = watched(run, log=path, record_every=every, clock=ticking())
        train(run, 10)
        monitor.validation(2.5)
        train(run, 3)
        monitor.close()
        weights.append([parameter.detach().clone() for parameter in run.model.parameters()])
    all_steps, third = (read(path) for path in logs)
    assert third.observations.step.tolist() == [3, 6, 9, 12]
    assert third.config["log_every_n_steps"] == 3
    for name in ("training_loss", "learning_rate", "grad_norm", "update_rms", "sigma_sq", "validation_loss"):
        np.testing.assert_array_equal(third.observations[name], all_steps.observations[name][2::3], err_msg=name)
    assert third.observations["step_time_s"].tolist() == [0.02] * 4
    assert all(map(torch.equal, *weights))


def test_of_parameter_groups_the_largest_learning_rate_is_logged(tmp_path: Path) -> None:
    model, _ = small_training()
    groups = [{"params": list(model[0].parameters()), "lr": 0.0}, {"params": list(model[2].parameters()), "lr": 0.05}]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    with TrainingMonitor(model, optimizer, log=tmp_path / "run.jsonl") as monitor:
        for step in range(4):
            optimizer.zero_grad()
            loss = small_loss(model, step)
            loss.backward()
            optimizer.param_groups[1]["lr"] *= 0.5
            monitor.step(loss)
            optimizer.step()
    assert read(tmp_path / "run.jsonl").observations["learning_rate"].tolist() == [0.025, 0.0125, 0.00625, 0.003125]


def test_time_goes_on_between_records(tmp_path: Path) -> None:
    run = make_live_run()
    seconds = iter(range(1000))
    log = tmp_path / "run.jsonl"
    monitor = watched(run, log=log, record_every=5, clock=lambda: float(next(seconds)))
    train(run, 20)
    monitor.hardware_event("Faulty GPU", kind="fatal", worker=0)
    train(run, 1)
    monitor.detach()
    assert [event["time_s"] for event in read(log).events if event["event"] == "HARDWARE_EVENT"] == [20.0]


def test_sigma_squared_waits_for_a_record(tmp_path: Path) -> None:
    run = make_live_run(workers=2)
    monitor = watched(run, log=tmp_path / "run.jsonl", record_every=3, sigma_sq_every=4)
    train(run, 24)
    monitor.close()
    found = read(tmp_path / "run.jsonl")
    assert found.config["sigma_sq_every_n_steps"] == 6
    kept = found.observations["sigma_sq"][1:]  # steps 6, 9, 12, …
    assert kept[::2].tolist()[:3] == kept[1::2].tolist()[:3] and len(set(kept.tolist())) == 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"policy": ["x"]}, "takes policies"),
        ({"policy": [GoBack(every=5), GoBack(every=0)], "hang": True}, "needs load="),
        ({"attention_logits": True}, "attention logits"),
    ],
)
def test_a_monitor_that_cannot_be_made_leaves_nothing_behind(options: dict[str, Any], said: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before, threads = hooks_of(model, optimizer), threading.active_count()
    with pytest.raises(UserError, match=said):
        TrainingMonitor(model, optimizer, hardware=False, **options)
    assert hooks_of(model, optimizer) == before
    assert threading.active_count() == threads


@pytest.mark.parametrize("take", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.filterwarnings("error")
def test_a_monitor_that_a_model_holds_is_not_copied_in_part(take: Callable[[Any], Any]) -> None:
    model, optimizer = small_training()
    with TrainingMonitor(model, optimizer, hardware=False, announce=False) as monitor:
        with pytest.raises(TypeError, match="a monitor cannot be copied or pickled; keep it outside"):
            take(monitor)
        model.monitor = monitor
        with pytest.raises(TypeError, match="a monitor cannot be copied or pickled; keep it outside"):
            (copy.deepcopy if take is copy.copy else take)(model)


class _Ends(TrainingMonitor):
    """Tells of the ways in which it ends."""

    ends: tuple[str, ...] = ()

    def close(self, failure: Failure | None = None) -> None:
        super().close(failure)
        self.ends += ("close",)

    def detach(self) -> None:
        super().detach()
        self.ends += ("detach",)


class _Stops(Policy):
    """Stops the training in its first step."""

    def inspect(self, context: StepContext) -> bool:
        raise TrainingStopped(context.step, "as asked")


def test_a_monitor_of_ones_own_ends_in_its_own_way() -> None:
    def made(**options: Any) -> _Ends:
        return _Ends(*small_training(), hardware=False, announce=False, **options)

    with made() as closed:
        pass
    with pytest.raises(KeyError), made() as left:
        raise KeyError
    stopped = made(policy=_Stops())
    with pytest.raises(TrainingStopped):
        stopped.step(0.5)
    assert [monitor.ends for monitor in (closed, left, stopped)] == [("close",), ("detach",), ("close",)]


def test_a_monitor_that_is_switched_off_for_some_steps_counts_them() -> None:
    model, optimizer = small_training()
    with TrainingMonitor(model, optimizer, hardware=False, announce=False) as monitor:
        for step in range(1, 5):
            monitor.enabled = step != 3
            small_loss(model, step).backward()
            monitor.step(0.5)
            assert monitor.enabled == (step != 3) and monitor.step_number == step


def test_a_policy_serves_one_monitor() -> None:
    run, policy = make_live_run(), SkipUpdate()
    watched(run, policy=policy).close()
    with pytest.raises(UserError, match="SkipUpdate that has served another monitor; make a new one"):
        watched(run, policy=policy)


def test_a_note_of_a_step_that_never_comes_is_written_at_the_end(tmp_path: Path) -> None:
    run = make_live_run()
    with watched(run, log=tmp_path / "run.jsonl") as monitor:
        monitor.note("LATER", step=50)
        train(run, 3)
    events = lines_of((tmp_path / "run.jsonl").read_bytes())
    assert [event["step"] for event in events if event["event"] == "LATER"] == [50]


def test_a_step_in_which_the_log_cannot_be_begun_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.Linear(2, 1)
    monitor = TrainingMonitor(model, torch.optim.SGD(model.parameters()), hardware=False)
    monkeypatch.setattr(monitor._run.recorder, "start", lambda _: 1 / 0)
    for _ in range(3):
        monitor.step(0.5)
    assert not monitor.enabled and monitor.step_number == 3
