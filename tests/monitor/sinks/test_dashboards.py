"""The Grafana dashboard and the alert rules: Prometheus' own tool takes them, and the sinks export what they read."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from rmetric.measurements import MEASUREMENTS, MECHANISM, VERDICTS
from rmetric.monitor.sinks import PrometheusTextfile
from tests.helpers import ROOT

FOLDER = ROOT / "docs" / "dashboards"
RULES = FOLDER / "prometheus_rules.yml"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana.json").read_text(encoding="utf-8"))
VARIABLES = {"$__rate_interval": "5m", "$run": ".*"}
DETECTORS = {"numerics": 0.0, "r_metric_robust": 3.0}


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("needs promtool (Debian package prometheus)")
    return found


def run(*command: str | Path, given: str = "") -> None:
    ended = subprocess.run([str(word) for word in command], capture_output=True, text=True, input=given)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def expressions() -> Iterator[str]:
    """PromQL of the dashboard, with Grafana's variables filled in."""
    texts = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    for text in [*texts, *(annotation["expr"] for annotation in DASHBOARD["annotations"]["list"])]:
        for variable, value in VARIABLES.items():
            text = text.replace(variable, value)
        assert "$" not in text
        yield text


def test_prometheus_takes_the_rules(promtool: str) -> None:
    run(promtool, "check", "rules", RULES)


def test_the_rules_fire_when_they_should_and_are_silent_otherwise(promtool: str) -> None:
    run(promtool, "test", "rules", FOLDER / "prometheus_rules_test.yml")
    tested = set(re.findall(r"alertname: (\w+)", (FOLDER / "prometheus_rules_test.yml").read_text()))
    assert tested == set(re.findall(r"- alert: (\w+)", RULES.read_text()))


def test_prometheus_takes_every_expression_of_the_dashboard(promtool: str, tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions())]
    assert len(rules) > 15
    file = tmp_path / "dashboard.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # YAML holds JSON
    run(promtool, "check", "rules", file)


@pytest.fixture
def exported(tmp_path: Path) -> str:
    """What a sink exports of a record with every field."""
    fields = [*MEASUREMENTS, *MECHANISM, *VERDICTS, "noise_scale"]
    sink = PrometheusTextfile(tmp_path / "job.prom")
    sink.start({"alert_thresholds": DETECTORS}, resume_step=None)
    sink.event({"event": "METRICS", "step": 1, **dict.fromkeys(fields, 1.0)})
    sink.event({"event": "HANG", "step": 1, "workers": [0], "message": "Worker 0 holds up the others."})
    return (tmp_path / "job.prom").read_text()


def test_prometheus_has_no_objection_to_what_is_exported(promtool: str, exported: str) -> None:
    run(promtool, "check", "metrics", given=exported)


def test_the_sinks_export_every_metric_that_is_read(exported: str) -> None:
    read = [*expressions(), *re.findall(r"expr: (.+)", RULES.read_text())]
    for metric in {name for text in read for name in re.findall(r"\brmetric_\w+", text)}:
        assert re.search(rf"^{metric}\{{", exported, re.M), metric
    for event in {name for text in read for name in re.findall(r'event="(\w+)"', text)}:
        assert f'event="{event}"' in exported, event


def test_panels_do_not_overlap_and_ask_the_chosen_data_source() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 and panel["description"] for panel in panels)
    sources = [item["datasource"]["uid"] for panel in panels for item in (panel, *panel["targets"])]
    assert {*sources} == {"${datasource}"}
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "run"]
