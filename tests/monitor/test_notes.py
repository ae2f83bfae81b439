"""Notes and hardware events of the user: kept in a form that people can read, or refused in one line."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rmetric import read_run
from rmetric.monitor import TrainingMonitor
from tests.helpers import lines_of
from tests.monitor.common import small_loss, small_training, train


class Unspeakable:
    """A value that has no text."""

    def __str__(self) -> str:
        raise ZeroDivisionError("no words")


def watched(tmp_path: Path, call: Callable[[TrainingMonitor], Any], **options: Any) -> list[dict[str, Any]]:
    """Lines of the log of three steps, in the second of which something is called; the monitor watches to the end."""
    model, optimizer = small_training()
    with TrainingMonitor(model, optimizer, log=tmp_path / "run.jsonl", hardware=False, **options) as monitor:
        for step in range(1, 4):
            optimizer.zero_grad()
            loss = small_loss(model, step)
            loss.backward()
            if step == 2:
                call(monitor)
                call(monitor)
                torch.load(_saved(monitor.state_dict()), weights_only=True)
            monitor.step(loss)
            optimizer.step()
    assert read_run(tmp_path / "run.jsonl").observations.step.tolist() == [1, 2, 3]
    return lines_of((tmp_path / "run.jsonl").read_bytes())


def _saved(state: dict[str, Any]) -> io.BytesIO:
    content = io.BytesIO()
    torch.save(state, content)
    content.seek(0)
    return content


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (torch.tensor(2.5), 2.5),
        (torch.tensor([1.0, 2.0]), "tensor([1., 2.])"),
        (np.arange(3), [0, 1, 2]),
        (Path("data/run.jsonl"), "data/run.jsonl"),
        ({"a"}, "{'a'}"),
        (2**70, str(2**70)),
        ("\udcff", "?"),
        ({"at": Path("x"), 3: [{1}]}, {"at": "x", "3": ["{1}"]}),
        (1j, "1j"),
    ],
)
def test_a_value_that_json_has_no_form_for_is_kept_as_text(value: Any, written: Any, tmp_path: Path) -> None:
    lines = watched(tmp_path, lambda monitor: monitor.note("MINE", value=value))
    notes = [line for line in lines if line["event"] == "MINE"]
    assert notes == [{"event": "MINE", "step": 2, "value": written}] * 2


def test_a_config_may_hold_anything(tmp_path: Path) -> None:
    lines = watched(tmp_path, lambda monitor: None, config={"data": Path("corpus"), "seed": np.int64(3), "x": object()})
    config = lines[0]["config"]
    assert (config["data"], config["seed"]) == ("corpus", 3) and config["x"].startswith("<object object")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda monitor: monitor.note("METRICS", training_loss=1.0), "a note cannot be named 'METRICS'"),
        (lambda monitor: monitor.note("EXPERIMENT_SUCCESS"), "a note cannot be named 'EXPERIMENT_SUCCESS'"),
        (lambda monitor: monitor.note(3), "a note cannot be named 3"),
        (lambda monitor: monitor.note("MINE", event="METRICS"), "multiple values for argument 'event'"),
        (lambda monitor: monitor.note("MINE", step="two"), "step= of the note MINE must be a whole number"),
        (lambda monitor: monitor.note("MINE", value=Unspeakable()), "ZeroDivisionError: no words"),
        (
            lambda monitor: monitor.hardware_event("GPU", kind="faatal"),
            "kind= of a hardware_event must be correctable or fatal, not 'faatal'",
        ),
        (lambda monitor: monitor.hardware_event("GPU", worker="a"), "must be the rank of a worker"),
    ],
)
def test_what_cannot_be_kept_is_refused_in_one_line_and_watching_goes_on(
    call: Callable[[TrainingMonitor], Any], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = watched(tmp_path, call, announce=False)
    [message] = caplog.messages
    assert said in message and "\n" not in message
    kinds = {line["event"] for line in lines}
    assert kinds == {"EXPERIMENT_START", "SIGNAL_SOURCE", "METRICS", "EXPERIMENT_SUCCESS"}


def test_a_hardware_event_is_kept_with_its_worker(tmp_path: Path) -> None:
    lines = watched(tmp_path, lambda monitor: monitor.hardware_event("NIC", worker=np.int64(3), details=Path("eth0")))
    events = [line for line in lines if line["event"] == "HARDWARE_EVENT"]
    assert [(event["component"], event["worker"], event["details"]) for event in events] == [("NIC", 3, "eth0")] * 2


@pytest.mark.parametrize("ended", [False, True])
def test_a_note_between_two_records_stands_once_in_the_log_of_a_resumed_run(ended: bool, tmp_path: Path) -> None:
    def watch(steps: range, state: dict[str, Any]) -> dict[str, Any]:
        model, optimizer = small_training()
        monitor = TrainingMonitor(model, optimizer, log=tmp_path / "run.jsonl", hardware=False, record_every=5)
        if state:
            monitor.load_state_dict(state)
        for step in steps:
            if step == 7:
                monitor.note("MINE")
                monitor.planned("another task")
            train(monitor, model, optimizer, [step])
        before_end = {} if ended else monitor.state_dict()
        monitor.detach()
        return monitor.state_dict() if ended else before_end

    watch(range(9, 11), watch(range(1, 9), {}))
    events = lines_of((tmp_path / "run.jsonl").read_bytes())
    assert [event["event"] for event in events if event.get("step") == 7] == ["MINE", "PLANNED_CHANGE"]


def test_a_note_before_the_first_step_waits_for_the_log(tmp_path: Path) -> None:
    model, optimizer = small_training()
    with TrainingMonitor(model, optimizer, log=tmp_path / "run.jsonl", hardware=False) as monitor:
        monitor.note("MINE", step=0)
        monitor.state_dict()
        train(monitor, model, optimizer, [1])
    assert lines_of((tmp_path / "run.jsonl").read_bytes())[1]["event"] == "MINE"


def test_a_run_without_a_step_leaves_no_log_and_no_word_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, optimizer = small_training()
    with TrainingMonitor(model, optimizer, log=tmp_path / "run.jsonl", hardware=False) as monitor:
        monitor.note("MINE")
        monitor.planned("another task")
    assert not (tmp_path / "run.jsonl").exists()
    assert caplog.messages == []
