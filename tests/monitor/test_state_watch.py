"""States of a watched run: told while it goes on, as soon as it has been long enough, and before the last line."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from rmetric.diagnosis import diagnose
from rmetric.log_reader import read_log
from rmetric.monitor import MetricsMonitor, TrainingMonitor
from rmetric.monitor.state_watch import StateWatch
from rmetric.records import Observations
from rmetric.replay import replay_log
from rmetric.replay.overview import overview_text
from rmetric.states import FIRST_LOOK, State, states_of
from tests.diagnosis.runs import losses, run_of
from tests.helpers import lines_of
from tests.monitor.common import small_loss, small_training

STEPS, EVERY = 240, 30
WATCHED: dict[str, Any] = {"hardware": False, "detectors": ["loss_spike"]}
"""Few detectors: they take a third of the time of a step, and none is asked about states."""


def overfitting(
    log: Path, *, rise: float = 0.1, resume_at: int = 0, forget: str = "", record_every: int = 1
) -> list[dict[str, Any]]:
    """A run whose validation loss rises by so much an evaluation after the second; the lines of its log.

    With ``resume_at`` it is resumed after that step, from a state without the entry ``forget``.
    """
    model, optimizer = small_training()
    options: dict[str, Any] = {"log": log, "record_every": record_every, **WATCHED}
    monitor = TrainingMonitor(model, optimizer, **options)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = small_loss(model, step)
        loss.backward()
        monitor.step(2.0 / step**0.5 + 0.01 * float(loss.detach()))
        optimizer.step()
        if step % EVERY == 0:
            number = step // EVERY
            monitor.validation(1.0 + (0.5 if number == 1 else rise * (number - 2)))
        if step == resume_at:
            state = monitor.state_dict()
            state.pop(forget, None)
            monitor.detach()
            monitor = TrainingMonitor(model, optimizer, **options)
            monitor.load_state_dict(state)
    monitor.close()
    return lines_of(log.read_bytes())


def states(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["event"] == "STATE"]


def test_it_is_told_and_stands_in_the_log_and_in_the_closing_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "rmetric"):
        lines = overfitting(tmp_path / "run.jsonl")
    assert [line["event"] for line in lines[-3:]] == ["VALIDATION", "STATE", "EXPERIMENT_SUCCESS"]
    state = lines[-2]
    assert (state["step"], state["state"], state["since"]) == (STEPS, "OVERFITS", 2 * EVERY)
    assert "in 6 evaluations, while the training loss fell" in state["message"]  # that after the last step included
    assert "Take the checkpoint with the lowest validation loss" in state["message"]
    *_, told, closing = caplog.records
    assert told.getMessage() == f"R-Metric: {state['message']}"
    assert closing.getMessage().startswith(
        "R-Metric: reached its end in a state that healthy runs are seldom in: no alert in 240 records; "
        "OVERFITS since step 60; the log is "
    )
    assert {told.levelno, closing.levelno} == {logging.WARNING}


def test_a_run_that_is_in_order_is_in_no_state(tmp_path: Path) -> None:
    assert not states(overfitting(tmp_path / "run.jsonl", rise=-0.1))


@pytest.mark.slow
def test_diagnosis_and_replay_of_the_log_say_the_same(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    (state,) = states(overfitting(log))
    replay = replay_log(log)
    assert [str(found) in state["message"] for found in replay.states] == [True]
    assert "healthy runs are seldom in: no alert in 240 records; OVERFITS since step 60" in overview_text([replay])
    (finding,) = diagnose(read_log(log)).findings
    assert (finding.name, finding.sure) == ("OVERFITS", pytest.approx(state["sure"], rel=1e-6))


@pytest.mark.slow
def test_a_resumed_run_ends_in_the_state_of_one_that_was_never_interrupted(tmp_path: Path) -> None:
    straight, resumed = tmp_path / "straight.jsonl", tmp_path / "resumed.jsonl"
    assert states(overfitting(straight)) == states(overfitting(resumed, resume_at=150)) != []


def test_evaluations_between_two_records_count(tmp_path: Path) -> None:
    (state,) = states(overfitting(tmp_path / "run.jsonl", record_every=40))
    assert (state["state"], state["since"]) == ("OVERFITS", 2 * EVERY)
    assert "in 6 evaluations" in state["message"]


@pytest.mark.parametrize("resume_at", [STEPS - 1, STEPS])
def test_a_run_that_is_resumed_near_its_end_has_an_end_again(tmp_path: Path, resume_at: int) -> None:
    log = tmp_path / "run.jsonl"
    lines = overfitting(log, resume_at=resume_at)
    assert [line["event"] for line in lines[-3:]] == ["VALIDATION", "STATE", "EXPERIMENT_SUCCESS"]
    assert [line["event"] for line in lines].count("VALIDATION") == STEPS // EVERY


@pytest.mark.slow
def test_a_run_that_is_resumed_after_its_end_is_in_no_state_of_before(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    model, optimizer = small_training()
    with TrainingMonitor(model, optimizer, log=log, **WATCHED) as monitor:
        for step in range(120):  # its loss stands still
            _step(monitor, model, optimizer, 2.0 + 0.01 * (step % 3))
        state = monitor.state_dict()
    assert states(lines_of(log.read_bytes()))[0]["state"] == "NEVER_LEARNS"
    with TrainingMonitor(model, optimizer, log=log, **WATCHED) as monitor:
        monitor.load_state_dict(state)
        for step in range(200):
            _step(monitor, model, optimizer, 2.0 / (1.0 + 0.1 * step))
    assert not states(lines_of(log.read_bytes()))
    assert replay_log(log).own.in_order  # type: ignore[union-attr]


def long_run(
    log: Path, losses: Iterable[float], *, step_s: float, end: bool = True, resume_at: int = 0
) -> list[dict[str, Any]]:
    """A run of these losses by a clock on which each step takes so long; the states in its log.

    With ``resume_at`` it is resumed after so many steps from where it was 50 steps before.
    """
    clock = (number * step_s for number in itertools.count())
    options: dict[str, Any] = {"log": log, "clock": lambda: next(clock), **WATCHED}
    monitor = MetricsMonitor(**options)
    for step, loss in enumerate(losses, 1):
        monitor.step(loss)
        if step == resume_at - 50:
            state = monitor.state_dict()
        if step == resume_at:
            monitor.detach()
            monitor = MetricsMonitor(**options)
            monitor.load_state_dict(state)
    if end:
        monitor.close()
    else:
        monitor.detach()
    return states(lines_of(log.read_bytes()))


def flat(steps: int) -> list[float]:
    return [2.0 + 0.01 * (step * 7919 % 13) for step in range(steps)]


def falling(steps: int) -> list[float]:
    return [2.0 / (1.0 + 0.1 * step) for step in range(steps)]


@pytest.mark.slow
def test_a_state_is_told_once_while_the_run_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    (told,) = long_run(log, flat(1040), step_s=5.0)
    assert (told["step"], told["state"], told["since"]) == (FIRST_LOOK, "NEVER_LEARNS", 1)
    assert "the run is in the state NEVER_LEARNS" in told["message"]
    assert replay_log(log).own.states == {"NEVER_LEARNS": 1}  # type: ignore[union-attr]


def test_a_loss_that_runs_off_below_zero_is_told_between_the_other_looks(tmp_path: Path) -> None:
    from_200 = [-25.0 * (step - 199) ** 2 for step in range(200, 320)]
    told = long_run(tmp_path / "run.jsonl", [25.0 + step % 3 for step in range(200)] + from_200, step_s=0.1, end=False)
    assert [(line["state"], line["since"]) for line in told] == [("UNBOUNDED", 202)]
    assert told[0]["step"] < 260


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "resume_at"), [(520, 0), (570, 700)])
def test_a_state_that_is_over_is_told_as_such_and_the_run_ends_in_order(
    steps: int, resume_at: int, tmp_path: Path
) -> None:
    log = tmp_path / "run.jsonl"
    first, over = long_run(log, [*flat(520), *falling(steps)], step_s=5.0, resume_at=resume_at)
    assert (first["state"], over["state"], over["over"]) == ("NEVER_LEARNS", "NEVER_LEARNS", True)
    assert (first["step"], over["step"]) == (FIRST_LOOK, 2 * FIRST_LOOK)
    assert replay_log(log).own.in_order  # type: ignore[union-attr]


@pytest.mark.slow
def test_what_was_told_after_the_checkpoint_is_told_again(tmp_path: Path) -> None:
    (told,) = long_run(tmp_path / "run.jsonl", flat(620), step_s=5.0, resume_at=540)  # the state is that of step 490
    assert told["step"] == FIRST_LOOK


@pytest.mark.slow
def test_a_look_that_fails_is_not_made_at_once_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def fails(seen: Observations, names: Collection[str]) -> list[State]:
        if "NEVER_LEARNS" in names:
            looks.append(len(seen))
        raise ImportError("no SciPy")

    monkeypatch.setattr("rmetric.monitor.state_watch.states_of", fails)
    assert not long_run(tmp_path / "run.jsonl", flat(1040), step_s=5.0)
    assert looks == [FIRST_LOOK, 2 * FIRST_LOOK, 1040]


def test_a_run_that_is_not_known_as_a_whole_is_not_asked_for_at_every_record() -> None:
    watch = StateWatch()
    due = []
    for record in range(1, 1100):
        if watch.is_due(1e6):
            due.append(record)
            assert watch.look(record, None) == []
    assert len(due) < 30


@pytest.mark.slow
def test_of_a_run_that_was_killed_the_log_tells_the_latest_state(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    assert len(long_run(log, flat(520), step_s=5.0, end=False)) == 1
    own = replay_log(log).own
    assert own.sentence.startswith(
        "not watched to its end, the last step is 520: no alert in 520 records; NEVER_LEARNS"
    )


@pytest.mark.slow
def test_looks_take_no_more_than_their_share_of_the_training(tmp_path: Path) -> None:
    assert [line["step"] for line in long_run(tmp_path / "run.jsonl", flat(520), step_s=0.02)] == [520]


def _step(monitor: TrainingMonitor, model: Any, optimizer: Any, loss: float) -> None:
    optimizer.zero_grad()
    small_loss(model, 1).backward()
    monitor.step(loss)
    optimizer.step()


def test_of_a_run_whose_beginning_is_not_known_no_state_is_told(tmp_path: Path) -> None:
    assert not states(overfitting(tmp_path / "run.jsonl", resume_at=150, forget="seen"))


@pytest.mark.slow
def test_a_classifier_whose_labels_are_at_random_never_learns_live_and_from_its_log(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    monitor = TrainingMonitor(model, optimizer, log=log, **WATCHED)
    for step in range(1, 401):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(torch.randn(32, 8)), torch.randint(10, (32,)))
        loss.backward()
        monitor.step(loss)
        optimizer.step()
        if step == 100:
            state = monitor.state_dict()
            monitor.detach()
            monitor = TrainingMonitor(model, optimizer, log=log, **WATCHED)
            monitor.load_state_dict(state)
    monitor.close()
    lines = lines_of(log.read_bytes())
    assert [line["classes"] for line in lines if line["event"] == "CLASSES"] == [10]
    assert [line["state"] for line in states(lines)] == ["NEVER_LEARNS"]
    (found,) = diagnose(read_log(log)).findings
    assert (found.name, [state.name for state in replay_log(log).states]) == ("NEVER_LEARNS", ["NEVER_LEARNS"])
    assert [state.name for state in states_of(read_log(log))] == ["NEVER_LEARNS"]


def test_a_run_that_dies_is_still_in_the_state_that_it_was_in_before() -> None:
    records = FIRST_LOOK + 50
    loss = np.where(np.arange(records) < 250, 1.0, 3.0) * losses(records)
    loss[FIRST_LOOK:] = math.inf
    run, watch = run_of(loss), StateWatch()
    (worse,) = watch.look(FIRST_LOOK, run.rows(slice(0, FIRST_LOOK)))
    (dead,) = watch.look(records, run)
    assert [(line["state"], line.get("over")) for line in (worse, dead)] == [("WORSE_LEVEL", None), ("DEAD", None)]
    assert dead["message"].endswith("WORSE_LEVEL began before it: go back to before that.")
