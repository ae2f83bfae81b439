"""What people hear of a run without having configured anything."""

from __future__ import annotations

import gc
import json
import logging
import math
import socket
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

from rmetric import read_run
from rmetric.errors import UserError
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.alerts import Alert
from rmetric.monitor.ending import AtExit
from rmetric.monitor.hardware import HardwareWatch, own_watch
from rmetric.monitor.repair import RecomputeStep
from rmetric.monitor.sinks import PrometheusEndpoint
from tests.forked import Ended, needs_fork, run_forked
from tests.monitor.common import small_loss, small_training
from tests.monitor.repair.common import Toy, hooks_of

NAN_GRADIENT = """
import torch, rmetric
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
with rmetric.TrainingMonitor(model, optimizer, log="run.jsonl") as monitor:
    for step in range(1, 6):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().mean()
        loss.backward()
        if step == 3:
            model.weight.grad[0, 0] = float("nan")
        monitor.step(loss)
"""


STOPS_ITSELF = """
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
monitor = rmetric.TrainingMonitor(model, optimizer, log="run.jsonl")
for step in range(1, 6):
    optimizer.zero_grad()
    loss = model(torch.full((2, 4), float("nan") if step == 3 else 1.0)).square().mean()
    loss.backward()
    monitor.step(loss)
    if not torch.isfinite(loss):
        {stop}
"""


STOPS = (
    ("raise FloatingPointError", False), ("raise SystemExit(3)", False), ("break", False), ("break", True),
    ("return", True), ("raise SystemExit(3)", True), ("raise FloatingPointError", True),
)  # fmt: skip
"""How it stops, and whether it does so in a function."""
NAN_IN_THE_GRADIENT = ("a NaN in the gradient", False)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, bool], Ended]:
    """The loops that have stopped themselves, and the one that has a NaN gradient, each with its log."""
    programs = {}
    for case in STOPS:
        loop = STOPS_ITSELF.format(stop=case[0])
        programs[case] = f"def train():{textwrap.indent(loop, '    ')}\ntrain()\n" if case[1] else loop
    programs[NAN_IN_THE_GRADIENT] = NAN_GRADIENT
    folders = {case: tmp_path_factory.mktemp("loop") for case in programs}
    done = run_forked({folders[case]: program for case, program in programs.items()})
    return {case: done[folder] for case, folder in folders.items()}


@needs_fork
@pytest.mark.slow
def test_a_nan_gradient_shows_on_a_console_where_nothing_is_configured(ended: dict[tuple[str, bool], Ended]) -> None:
    program = ended[NAN_IN_THE_GRADIENT]
    assert program.code == 0 and program.printed == ""
    alert, verdict = program.errors.splitlines()  # and no word about a GPU
    assert alert.startswith("R-Metric: Step 3: the gradient of weight is not finite (1 tensor of 2)")
    assert verdict == (
        "R-Metric: not in order, look at its alerts: 1 alert in 5 records, the first at step 3 (numerics); "
        "the log is run.jsonl"
    )


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("case", STOPS, ids=lambda case: f"{case[0]}{' in a function' * case[1]}")
def test_a_loop_that_stops_itself_at_nan_and_closes_nothing_hears_of_it(
    case: tuple[str, bool], ended: dict[tuple[str, bool], Ended]
) -> None:
    told = ended[case].errors.splitlines()
    alert, verdict = (line for line in told if line.startswith("R-Metric: "))
    assert alert.startswith("R-Metric: Step 3: the loss is not finite")
    assert "not watched to its end, the last step is 3: 1 alert in 3 records" in verdict
    run = read_run(ended[case].folder / "run.jsonl")
    assert run.observations["training_loss"][-1] == math.inf
    assert run.terminal is None


@pytest.mark.parametrize("options", [{}, {"policy": RecomputeStep()}, {"sync": True}], ids=["plain", "policy", "sync"])
def test_a_monitor_that_is_left_gives_its_hooks_back_to_the_next_one(
    options: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a cell of a notebook that is run again: the name is bound to the next monitor."""
    model, optimizer = small_training()
    monitor = TrainingMonitor(model, optimizer, hardware=False, log=tmp_path / "run.jsonl", **options)
    for step in range(1, 4):
        optimizer.zero_grad()
        loss = small_loss(model, step)
        loss.backward()
        monitor.step(loss * math.nan if step == 3 else loss)
    alone = sum(hooks_of(model, optimizer).values())
    monitor = TrainingMonitor(model, optimizer, hardware=False)
    small_loss(model, 4)  # called as a whole, the model gives back the hooks of its parts
    assert 0 < sum(hooks_of(model, optimizer).values()) <= alone
    assert [text for text in messages(caplog) if "Step 3: the loss is not finite" in text]
    assert read_run(tmp_path / "run.jsonl").last_step == 3
    monitor.close()
    assert not any(hooks_of(model, optimizer).values())


@pytest.mark.slow
def test_a_monitor_that_is_left_serves_nothing_any_more() -> None:
    pytest.importorskip("prometheus_client")
    endpoint = PrometheusEndpoint(0)
    monitor = TrainingMonitor(*small_training(), hardware=False, sinks=[endpoint])
    monitor.step(1.0)
    del monitor
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", endpoint.port))


def test_a_monitor_that_was_never_made_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UserError, match="policy= takes policies"):
        TrainingMonitor(*small_training(), hardware=False, policy="x")  # type: ignore[arg-type]
    gc.collect()
    assert not caplog.records


def trained(broken: dict[int, str], **options: Any) -> TrainingMonitor:
    """A monitor after 60 steps of a tiny model; in the steps of ``broken`` the loss or a gradient is NaN."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with TrainingMonitor(model, optimizer, hardware=False, **options) as monitor:
        for step in range(1, 61):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 4)).square().mean()
            loss.backward()
            for parameter in model.parameters() if step in broken else ():
                parameter.grad.fill_(math.nan)
            monitor.step(loss * math.nan if broken.get(step) == "loss" else loss)
            optimizer.step() if step not in broken else None
    return monitor


def messages(caplog: pytest.LogCaptureFixture, level: int = logging.WARNING) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "rmetric" and record.levelno >= level]


def test_two_detectors_that_see_one_nan_are_one_alert_for_people_and_two_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Alert] = []
    monitor = trained({50: "gradient"}, log=tmp_path / "run.jsonl", on_alert=told.append)
    events = [event for event in read_run(tmp_path / "run.jsonl").events if event["event"] == "ALERT"]
    assert [(event["detector"], event.get("repeats")) for event in events] == [
        ("numerics", None),
        ("r_metric_robust", "numerics"),
    ]
    assert {event["cause"] for event in events} == {"not_finite"}
    assert [(alert.step, alert.detector) for alert in told] == [(50, "numerics")]
    assert [text for text in messages(caplog) if "Step 50" in text] == [f"R-Metric: {told[0].message}"]
    assert monitor.alerts == {"numerics": 50, "r_metric_robust": 50}


def test_the_log_of_an_infinite_score_is_strict_json(tmp_path: Path) -> None:
    told: list[Alert] = []
    trained({50: "loss"}, log=tmp_path / "run.jsonl", on_alert=told.append, config={"clip": math.inf})
    assert told[0].score == math.inf
    lines = (tmp_path / "run.jsonl").read_text().splitlines()
    events = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert [event["non_finite"] for event in events if event["event"] == "ALERT"] == [["score"]] * 2
    assert events[0]["config"]["clip"] == "inf"


def test_another_cause_is_another_alert(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Alert] = []
    trained({40: "loss", 41: "gradient"}, detectors=("numerics",), on_alert=told.append)
    assert [alert.step for alert in told] == [40]  # the same cause, within 50 quiet steps
    assert "Likely causes, the most frequent first: a learning rate that is too high (it is 0.01)" in told[0].message
    assert len(messages(caplog)) == 2


@pytest.mark.parametrize(("level", "shown_at"), [(logging.INFO, logging.INFO), (logging.WARNING, logging.WARNING)])
def test_the_closing_line_of_a_run_in_order_is_shown_once_whatever_is_shown(
    level: int, shown_at: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(level, "rmetric"):
        trained({}, log=tmp_path / "run.jsonl").close()
    (record,) = (record for record in caplog.records if record.name == "rmetric")
    assert record.levelno == shown_at
    in_order = "R-Metric: in order as far as it was watched: no alert in 60 records; the log is "
    assert record.getMessage() == f"{in_order}{tmp_path / 'run.jsonl'}"


def test_nobody_hears_a_monitor_that_is_not_to_announce(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Alert] = []
    trained({50: "loss"}, announce=False, on_alert=told.append)
    assert messages(caplog) == [] and len(told) == 1


def test_a_transient_corruption_is_announced_and_points_at_the_hardware(caplog: pytest.LogCaptureFixture) -> None:
    toy = Toy()
    toy.flip_in = {30: 1}
    with toy.watch(policy=RecomputeStep(), announce=True) as monitor:
        toy.train(40, monitor)
    repair, verdict = messages(caplog)
    assert repair.startswith("R-Metric: Step 30: RecomputeStep: the step was computed again and came out different")
    assert "points at the hardware" in repair
    assert verdict.startswith("R-Metric: reached its end, repaired on the way: no alert in 40 records; 1 repair")


def test_a_resumed_run_goes_on_counting(caplog: pytest.LogCaptureFixture) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    first = TrainingMonitor(model, optimizer, hardware=False)
    for _ in range(3):
        model(torch.ones(2, 4)).mean().backward()
        first.step(math.nan)
    state = first.state_dict()
    first.detach()
    caplog.clear()
    second = TrainingMonitor(model, optimizer, hardware=False)
    second.load_state_dict(state)
    second.step(1.0)
    second.close()
    assert "1 alert in 4 records, the first at step 1 (numerics)" in messages(caplog)[-1]


@pytest.mark.parametrize(("asked", "on_gpu", "said"), [(None, False, 0), (True, False, 1), (None, True, 1)])
def test_that_there_is_no_gpu_is_told_to_who_asked_for_one(
    asked: bool | None, on_gpu: bool, said: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # none is visible, wherever this runs
    watch = own_watch(asked, on_gpu=on_gpu)
    with watch:
        told = watch.notes()
        assert len(told) == said
        assert all("λ counts" in note for note in told)


def test_a_watch_that_the_user_brings_is_left_to_the_user() -> None:
    with HardwareWatch([], None) as watch:
        assert own_watch(watch, on_gpu=False) is None and own_watch(False, on_gpu=True) is None


class Leaves:
    times = 0

    def leave(self) -> None:
        self.times += 1


def test_who_has_left_at_the_end_of_the_program_asks_no_module_that_is_gone_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leaves = Leaves()
    at_exit = AtExit(leaves.leave)
    assert at_exit.due
    at_exit._end()
    monkeypatch.setattr("rmetric.monitor.ending.os", None)  # as the interpreter leaves it to the last finalisers
    at_exit._end()
    assert leaves.times == 1 and not at_exit.due
