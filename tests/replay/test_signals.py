"""λ, σ² and ΔL out of a log: from what they are made of, or as logged."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from rmetric.log_reader import read_log
from rmetric.log_writer import encode_event, to_log_precision
from rmetric.measurements import VERDICTS
from rmetric.replay import replay_log
from rmetric.replay.overview import overview_text
from rmetric.replay.plot import replay_figure
from rmetric.reporting import style
from rmetric.signals import ValidationDrift
from tests.replay.logs import REAL, drawn, needs_real_runs, replayed


def test_raw_signals_come_out_bit_for_bit(log: Path) -> None:
    _, columns = replayed(log)
    run = read_log(log)
    for name in ("delta_l", "lambda", "sigma_sq"):
        assert np.array_equal(columns[name], run.observations[name], equal_nan=True)


def test_two_evaluations_with_the_same_loss_are_two(tmp_path: Path) -> None:
    drift = ValidationDrift()
    lines = []
    for step, loss in enumerate((3.0, 2.5, 2.5, 2.25), start=1):
        delta_l = drift.update(loss)
        record = {"event": "METRICS", "step": step, "validation_loss": loss}
        lines.append(encode_event(record if math.isnan(delta_l) else {**record, "delta_l": delta_l}))
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(lines))
    for chunk_records in (1, 100):
        replay, _ = replayed(path, chunk_records=chunk_records)
        assert replay.agreement["delta_l"].max_difference == 0.0


def test_a_signal_whose_raw_value_begins_later_is_normalised_from_then_on(tmp_path: Path) -> None:
    lines = [
        {"step": 1, "sigma_sq_norm": 0.25},
        {"step": 2, "sigma_sq_norm": 0.5, "sigma_sq": 1.0},
        {"step": 3, "sigma_sq": 3.0},
    ]
    path = tmp_path / "run.jsonl"
    path.write_text("\n".join(json.dumps({"event": "METRICS", **line}) for line in lines))
    _, columns = replayed(path)
    assert columns["sigma_sq_norm"].tolist() == [0.25, 0.0, 1.0]
    assert columns["r_metric"].tolist() == pytest.approx([0.45 * 0.25, 0.0, 0.45])


def test_a_hardware_event_without_a_time_gets_it_from_its_step(tmp_path: Path) -> None:
    def log_of(*events: dict[str, Any]) -> Path:
        path = tmp_path / "run.jsonl"
        path.write_bytes(b"".join(map(encode_event, events)))
        return path

    events: Sequence[dict[str, Any]] = [
        {"event": "METRICS", "step": 10, "step_time_s": 4.0},
        {"event": "HARDWARE_EVENT", "step": 15},
        {"event": "HARDWARE_EVENT", "step": 465},
        {"event": "METRICS", "step": 470, "step_time_s": 4.0},
    ]
    for chunk_records in (1, 2):
        _, columns = replayed(log_of(*events), chunk_records=chunk_records)
        assert columns["lambda"][1] == 2 * 3600 / (450 * 4.0)


def test_many_hardware_events_between_two_records_are_all_counted(tmp_path: Path) -> None:
    events = [{"event": "METRICS", "step": 1}]
    events += [{"event": "HARDWARE_EVENT", "step": 2, "time_s": 100.0 * k} for k in range(40)]
    events += [{"event": "METRICS", "step": 3}]
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(map(encode_event, events)))
    for chunk_records in (1, 3, 40, 41, 1000):
        _, columns = replayed(path, chunk_records=chunk_records)
        assert columns["lambda"][1] == to_log_precision(40 * 3600 / 3900)


@needs_real_runs
def test_real_runs_say_that_no_hardware_event_is_in_them() -> None:
    replays = [replay_log(path) for path in REAL]
    assert len(replays) == 16
    assert {replay.signals["lambda"] for replay in replays} == {"not in the log"}
    assert {replay.outcome for replay in replays} == {"clean", "failed", "recovered", "censored"}
    assert all(replay.damaged == 0 for replay in replays)


def _written(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("\n".join(json.dumps({"step": step, **record}) for step, record in enumerate(records, start=1)))
    return path


def test_r_of_a_log_without_its_signals_is_not_known(tmp_path: Path) -> None:
    path = _written(tmp_path / "run.jsonl", *({"loss": loss} for loss in (3.0, 2.5, 31.0, 31.0)))
    replay, columns = replayed(path)
    assert replay.missing == ("lambda", "sigma_sq", "delta_l")
    assert all(np.isnan(columns[name]).all() for name in VERDICTS)
    assert replay.lacks["grad_norm"] == "no score; the log lacks grad_norm"
    assert replay.lacks["r_metric_robust"].startswith("uses only training_loss; the log lacks ")
    text = overview_text([replay])
    assert "not in the log: λ, σ², ΔL; R is not known: none of its signals was measured" in text
    assert "grad_norm: no score; the log lacks grad_norm" in text


def test_a_signal_that_is_not_in_the_log_is_named_and_not_drawn(tmp_path: Path) -> None:
    losses = ({"eval_loss": loss} if loss else {"loss": 1.0} for loss in (0.0, 3.0, 0.0, 2.5, 0.0, 2.7))
    replay, curves = drawn(_written(tmp_path / "run.jsonl", *losses))
    assert "not in the log: λ, σ²; ΔL recomputed from validation_loss; R uses only ΔL" in overview_text([replay])
    assert {name: curves.series[name].steps.tolist() for name in VERDICTS} == {
        "lambda_norm": [], "sigma_sq_norm": [], "delta_l_norm": [4, 5, 6], "r_metric": [4, 5, 6],
    }  # fmt: skip
    panels = [[text.get_text() for text in ax.texts] for ax in replay_figure(replay, curves).axes]
    assert panels == [[], ["λ: not in the log"], ["σ²: not in the log"], [], []]


def test_a_signal_has_the_colour_that_it_has_in_every_figure(tmp_path: Path) -> None:
    panels = replay_figure(*drawn(_written(tmp_path / "run.jsonl", {"loss": 1.0}))).axes[1:4]
    assert [ax.lines[0].get_color() for ax in panels] == [color for _, _, color, _ in style.SIGNALS]


@pytest.mark.parametrize(("loss", "said"), [(math.nan, ["no finite loss"]), (None, ["no loss in the log"])])
def test_a_loss_that_is_never_finite_is_another_than_none(loss: float | None, said: list[str], tmp_path: Path) -> None:
    row = {"grad_norm": 1.0} if loss is None else {"loss": loss}
    figure = replay_figure(*drawn(_written(tmp_path / "run.jsonl", *[row] * 20)))
    assert [text.get_text() for text in figure.axes[0].texts] == said


@pytest.mark.parametrize("every", [1, 1_000, 250_000])
def test_every_number_of_the_step_axis_is_on_the_figure(every: int, tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    log.write_text("".join(f'{{"step": {row * every}, "loss": 2.0}}\n' for row in range(401)))
    figure = replay_figure(*drawn(log))
    FigureCanvasAgg(figure).draw()
    ax = figure.axes[-1]
    ticks = zip(ax.get_xticks(), ax.get_xticklabels(), strict=True)
    shown = [label.get_window_extent() for tick, label in ticks if ax.get_xlim()[0] <= tick <= ax.get_xlim()[1]]
    assert min(box.x0 for box in shown) >= 0.0 and max(box.x1 for box in shown) <= figure.bbox.x1


def test_a_single_evaluation_is_no_drift(tmp_path: Path) -> None:
    replay, columns = replayed(_written(tmp_path / "run.jsonl", {"loss": 1.0}, {"eval_loss": 2.0}, {"loss": 1.0}))
    assert replay.signals["delta_l"] == "not known after a single evaluation"
    assert replay.missing == ("lambda", "sigma_sq", "delta_l")
    assert np.isnan(columns["r_metric"]).all()


def test_what_a_live_run_did_not_measure_is_not_as_logged(tmp_path: Path) -> None:
    events = [
        {"event": "EXPERIMENT_START", "config": {"signals_measured_live": True}},
        *(
            {"event": "METRICS", "step": step, "sigma_sq": sigma_sq, "lambda_norm": 0.0, "sigma_sq_norm": norm}
            for step, sigma_sq, norm in ((1, 1.0, 0.0), (2, 3.0, 1.0))
        ),
    ]
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(map(encode_event, events)))
    replay, columns = replayed(path)
    assert replay.signals["lambda"] == "not in the log"
    assert np.isnan(columns["lambda_norm"]).all()
    assert columns["sigma_sq_norm"].tolist() == [0.0, 1.0]
