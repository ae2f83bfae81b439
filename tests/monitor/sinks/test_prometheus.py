"""Tests of the Prometheus sinks, with the client library's own parser."""

from __future__ import annotations

import math
import re
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from rmetric.errors import UserError
from rmetric.measurements import MEASUREMENTS, MECHANISM, VERDICTS
from rmetric.monitor.sinks import PrometheusEndpoint, PrometheusTextfile, Sinks
from rmetric.monitor.sinks.prometheus import metric_name

CONFIG = {"experiment_id": "x", "alert_thresholds": {"numerics": 0.0, "r_metric_robust": 3.1}}
KINDS = ("HARDWARE_EVENT", "HANG", "REPAIR", "EXPERIMENT_FAILURE", "EXPERIMENT_SUCCESS")


def metrics(step: int, **fields: Any) -> dict[str, Any]:
    return {"event": "METRICS", "step": step, "alerts": {}, "is_nan": False, **fields}


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Name and label values (by label, alphabetically) → value, without the times of creation."""
    parser = pytest.importorskip("prometheus_client.parser")
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def at_zero(run: str) -> dict[tuple[str, ...], float]:
    """Counters of a run that has only begun."""
    alerts = [("rmetric_events_total", detector, "ALERT", run) for detector in ("numerics", "r_metric_robust")]
    others = [("rmetric_events_total", "", kind, run) for kind in KINDS]
    return dict.fromkeys([("rmetric_alerts_total", run), *alerts, *others], 0.0)


def timeless(read: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    return {key: value for key, value in read.items() if key[0] != "rmetric_last_step_timestamp_seconds"}


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("training_loss", "rmetric_training_loss_nats"),
        ("lambda", "rmetric_lambda_per_hour"),
        ("step_time_max_s", "rmetric_step_time_max_seconds"),
        ("grad_norm", "rmetric_grad_norm"),
        ("non_finite_count", "rmetric_non_finite_gradients"),
        ("layer.3/norm", "rmetric_layer_3_norm"),
    ],
)
def test_names(field: str, name: str) -> None:
    assert metric_name(field) == name


def test_a_textfile(tmp_path: Path) -> None:
    path = tmp_path / "new" / "job.prom"
    sink = PrometheusTextfile(path, every_steps=5)
    sink.start(CONFIG, resume_step=None)
    assert timeless(samples(path.read_text())) == at_zero("job") | {
        ("rmetric_step", "job"): 0.0,
        ("rmetric_run_active", "job"): 1.0,
    }
    seen = []
    for step in range(1, 13):
        sink.event(metrics(step, training_loss=2.0 + step, **({"delta_l": math.inf} if step < 9 else {})))
        seen.append(samples(path.read_text())["rmetric_step", "job"])
    assert seen == [1, 1, 1, 1, 1, 6, 6, 6, 6, 6, 11, 11]
    read = samples(path.read_text())
    assert read["rmetric_training_loss_nats", "job"] == 13.0
    assert math.isnan(read["rmetric_delta_l_nats", "job"])  # the last record does not have it

    sink.event({"event": "ALERT", "step": 12, "detector": "numerics", "message": "…"})
    sink.event({"event": "ALERT", "step": 12, "detector": "r_metric_robust", "message": "…", "repeats": "numerics"})
    read = samples(path.read_text())
    assert read["rmetric_events_total", "numerics", "ALERT", "job"] == 1.0
    assert read["rmetric_events_total", "r_metric_robust", "ALERT", "job"] == 1.0
    assert read["rmetric_alerts_total", "job"] == 1.0  # one cause
    assert read["rmetric_step", "job"] == 12.0
    sink.close()
    assert samples(path.read_text())["rmetric_run_active", "job"] == 0.0
    assert [item.name for item in path.parent.iterdir()] == ["job.prom"]


def test_help_begins_with_a_capital_and_a_symbol_stays_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "job.prom"
    sink = PrometheusTextfile(path)
    sink.start(CONFIG, resume_step=None)
    sink.event(metrics(1, **{"grad_norm": 2.0, "lambda": 0.0, "sigma_sq": 1.0}))
    helps = [line.split(" ", 3)[3] for line in path.read_text(encoding="utf-8").splitlines() if "# HELP" in line]
    begins = {text.partition(":")[0] for text in helps}
    assert {"Global gradient norm, before clipping", "λ", "σ²"} <= begins


def test_a_relative_path_stays_where_the_textfile_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sink = PrometheusTextfile("job.prom", every_steps=1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    sink.start(CONFIG, resume_step=None)
    sink.event(metrics(1))
    assert str(sink) == "job.prom" and samples((tmp_path / "job.prom").read_text())["rmetric_step", "job"] == 1.0


def test_the_workers_that_hang_are_gauges(tmp_path: Path) -> None:
    path = tmp_path / "job.prom"
    sink = PrometheusTextfile(path)
    sink.start(CONFIG, resume_step=None)
    hang = {"step": 7, "workers": [1, 3]}
    sink.event({"event": "HANG", **hang})
    assert {worker: samples(path.read_text())["rmetric_hanging", "job", worker] for worker in "13"} == {"1": 1, "3": 1}
    sink.event({"event": "HANG_OVER", **hang})
    read = samples(path.read_text())
    assert {worker: read["rmetric_hanging", "job", worker] for worker in "13"} == {"1": 0, "3": 0}
    assert read["rmetric_events_total", "", "HANG", "job"] == 1.0


def test_a_textfile_is_checked_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"files that end in \.prom only, not job\.txt"):
        PrometheusTextfile(tmp_path / "job.txt")
    with pytest.raises(UserError, match="every_steps must be at least 1, not 0"):
        PrometheusTextfile(tmp_path / "job.prom", every_steps=0)


@pytest.mark.slow
def test_an_endpoint(caplog: pytest.LogCaptureFixture) -> None:
    threads = threading.active_count()
    sink = PrometheusEndpoint(0)
    sink.start(CONFIG, resume_step=7)
    url = f"http://127.0.0.1:{sink.port}/metrics"
    sink.event(metrics(8, r_metric=math.inf))
    with urllib.request.urlopen(url) as answer:
        read = samples(answer.read().decode())
    assert timeless(read) == at_zero("x") | {
        ("rmetric_step", "x"): 8.0,
        ("rmetric_run_active", "x"): 1.0,
        ("rmetric_r_metric", "x"): math.inf,
    }

    second = Sinks([PrometheusEndpoint(sink.port)])  # the port is taken: a warning, no more
    second.start(CONFIG, resume_step=None)
    assert second.active == ()
    assert caplog.messages == [
        f"Prometheus endpoint 127.0.0.1:{sink.port}: address already in use; this sink never starts, training goes on"
    ]
    sink.close()
    sink.close()
    assert threading.active_count() == threads
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url)


def test_the_time_of_the_last_step_tells_a_run_that_hangs(tmp_path: Path) -> None:
    path = tmp_path / "job.prom"
    sink = PrometheusTextfile(path, every_steps=1)
    before = time.time()
    sink.start(CONFIG, resume_step=None)
    started = samples(path.read_text())["rmetric_last_step_timestamp_seconds", "job"]
    sink.event(metrics(1))
    stepped = samples(path.read_text())["rmetric_last_step_timestamp_seconds", "job"]
    sink.event({"event": "ALERT", "step": 1, "detector": "numerics"})  # is no step
    assert before <= started <= stepped <= time.time()
    assert samples(path.read_text())["rmetric_last_step_timestamp_seconds", "job"] == stepped


def test_help_texts_say_what_a_name_does_not(tmp_path: Path) -> None:
    fields = [*MEASUREMENTS, *MECHANISM, *VERDICTS, "noise_scale"]
    path = tmp_path / "job.prom"
    sink = PrometheusTextfile(path)
    sink.start(CONFIG, resume_step=None)
    sink.event(metrics(1, **dict.fromkeys(fields, 1.0)))
    helps = dict(re.findall(r"^# HELP (\S+) (.+)$", path.read_text(), re.M))
    assert {metric_name(field) for field in fields} <= {*helps}
    for name, text in helps.items():
        assert text[0].isupper() or not text[0].isascii(), text
        assert {*re.findall(r"[a-z]{3,}", text.lower())} - {*name.split("_")}, f"{name}: {text}"


def test_closing_before_the_start_does_nothing(tmp_path: Path) -> None:
    PrometheusTextfile(tmp_path / "job.prom").close()
    PrometheusEndpoint(0).close()
    assert list(tmp_path.iterdir()) == []


def test_without_the_client_the_user_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UserError, match=r"^The Prometheus client is not installed; pip install 'rmetric\[sinks\]'$"):
        PrometheusEndpoint(0)
