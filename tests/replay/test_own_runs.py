"""Replay of a user's own live run: what its own monitor said, and whether the run was in order."""

from __future__ import annotations

import json
import math
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rmetric.replay import Replay, replay_log
from rmetric.replay.overview import overview_rows, overview_text
from rmetric.replay.plot import replay_figure
from tests.replay.logs import drawn

torch = pytest.importorskip("torch", reason="needs the extra 'live'")
STEPS = 60


def live_run(path: Path, *, broken: int = 0, **options: Any) -> Path:
    """The log of a tiny training; in step ``broken`` the gradient is NaN."""
    from rmetric.monitor import TrainingMonitor

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    steady = count(step=0.01).__next__  # a busy machine's slow steps would be alerts of their own
    with TrainingMonitor(
        model, optimizer, log=path, hardware=False, announce=False, clock=steady, **options
    ) as monitor:
        for step in range(1, STEPS + 1):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 4)).square().mean()
            loss.backward()
            if step == broken:
                model.weight.grad.fill_(math.nan)
            monitor.step(loss)
            if step != broken:
                optimizer.step()
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs whose logs have the same name."""
    folder = tmp_path_factory.mktemp("runs")
    live_run(folder / "good" / "run.jsonl")
    live_run(folder / "bad" / "run.jsonl", broken=50)
    return folder


def first_row(replay: Replay) -> list[str]:
    return overview_rows([replay])[0]


def test_a_run_in_order_is_said_to_be(folder: Path) -> None:
    replay = replay_log(folder / "good" / "run.jsonl")
    assert replay.own is not None and replay.own.in_order
    assert (replay.outcome, replay.fault, replay.shown_first_alert) == ("ended", "-", None)
    assert "was it in order? in order as far as it was watched: no alert in 60 records" in overview_text([replay])
    assert {"ended", "-"} <= {*first_row(replay)} and "clean" not in first_row(replay)


def test_the_alerts_of_the_run_s_own_monitor_are_shown_once_a_cause(folder: Path) -> None:
    replay, curves = drawn(folder / "bad" / "run.jsonl")
    assert replay.own is not None and not replay.own.in_order
    assert [(alert.step, alert.detector) for alert in replay.own_alerts] == [(50, "numerics")]
    assert replay.alerts_agree is True  # of all its detectors, as the log has them
    text = overview_text([replay])
    assert "was it in order? not in order, look at its alerts: 1 alert in 60 records, the first at step 50" in text
    assert "alert of its own monitor (numerics): Step 50: the gradient of weight is not finite (1 tensor of 2)" in text
    assert "50" in first_row(replay)
    shown = json.loads(json.dumps(replay.to_dict(), allow_nan=False))["own_monitor"]
    assert (shown["in_order"], shown["alerts"][0]["step"]) == (False, 50)
    figure = replay_figure(replay, curves)
    words = [text.get_text() for text in (*figure.texts, *figure.legends[0].get_texts())]
    assert any("not in order" in text for text in words) and "first alert, own monitor: step 50" in words
    assert not any("control run" in text for text in words)


def failed(path: Path) -> Path:
    """A log that says at its end that the run has failed."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[-1] = b'{"event":"EXPERIMENT_FAILURE","step":55,"reason":"NAN_LOSS"}\n'
    path.write_bytes(b"".join(lines))
    return path


def test_a_run_that_failed_failed(tmp_path: Path) -> None:
    replay = replay_log(failed(live_run(tmp_path / "run.jsonl")))
    assert replay.own is not None
    assert replay.own.sentence == "failed at step 55 (NAN_LOSS): no alert in 60 records"
    assert replay.outcome == "failed"


@pytest.mark.parametrize(("broken", "shown"), [(50, ["50", "5"]), (0, ["-", "-"])])
def test_the_lead_is_that_of_the_alert_which_is_shown(broken: int, shown: list[str], tmp_path: Path) -> None:
    replay = replay_log(failed(live_run(tmp_path / "run.jsonl", broken=broken)))
    assert replay.first_alert is not None and replay.first_alert < 50  # the R-Metric's in the paper's setting
    assert (first_row(replay)[7], first_row(replay)[9]) == tuple(shown)
    assert first_row(replay)[8] == ("own monitor, numerics" if broken else "-")


def test_an_evaluation_after_the_last_record_is_drawn_and_not_said_to_be_lacking(folder: Path, tmp_path: Path) -> None:
    *lines, end = (folder / "good" / "run.jsonl").read_text().splitlines()
    evaluation = json.dumps({"event": "VALIDATION", "step": STEPS, "validation_loss": 0.5})
    (tmp_path / "run.jsonl").write_text("\n".join([*lines, evaluation, end]) + "\n")
    replay, curves = drawn(tmp_path / "run.jsonl")
    assert curves.series["validation_loss"].steps.tolist() == [STEPS]
    assert not any("validation_loss" in lack.partition("lacks")[2] for lack in replay.lacks.values())


@pytest.mark.parametrize("over", [False, True])
def test_repairs_that_ended_are_told_as_the_closing_line_tells_them(over: bool, folder: Path, tmp_path: Path) -> None:
    *lines, end = (folder / "good" / "run.jsonl").read_text().splitlines()
    events = [{"event": "REPAIRS_ENDED", "step": 41}, {"event": "REPAIRS_ENDED", "step": 51, "over": True}]
    said = [json.dumps(event) for event in events[: 1 + over]]
    (tmp_path / "run.jsonl").write_text("\n".join([*lines, *said, end]) + "\n")
    text = overview_text([replay_log(tmp_path / "run.jsonl")])
    assert "no alert in 60 records" in text
    assert ("nothing could be repaired any more from step 41 on" in text) is not over


def test_a_control_run_of_an_experiment_is_no_user_s_own_run(tmp_path: Path) -> None:
    injection = {"type": "NONE", "severity": None, "trigger_step": None, "params": {}}
    replay = replay_log(live_run(tmp_path / "run.jsonl", config={"fault_injection": injection}))
    assert replay.own is None
    assert (replay.outcome, replay.fault) == ("clean", "NONE")


def test_what_a_log_says_cannot_break_the_terminal_or_fill_the_memory(tmp_path: Path) -> None:
    path = live_run(tmp_path / "run.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    evil = {"event": "ALERT", "step": 50, "detector": "a\u001b[31m|b", "message": "x\u0007" * 10_000}
    path.write_bytes(b"".join([*lines[:-1], *([json.dumps(evil).encode() + b"\n"] * 300), lines[-1]]))
    replay = replay_log(path)
    assert replay.own is not None and replay.own.alerts == 300
    assert len(replay.own_alerts) == 100 and len(replay.own_alerts[0].message) <= 1000
    text = overview_text([replay])
    assert "\u001b" not in text and "\u0007" not in text and "297 more alerts of its own monitor" in text
