from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmetric.architectures import ARCHITECTURES
from rmetric.errors import UserError
from rmetric.faults import FAULTS, SEVERITIES, Fault
from rmetric.simulation import SimulationParameters, TrainingSimulator
from rmetric.simulation.parameters import SHIPPED
from studies.calibration.assumptions import ELSEWHERE


@pytest.fixture
def content() -> dict:
    return json.loads(SHIPPED.read_text(encoding="utf-8"))


def test_the_shipped_ones_are_what_the_simulator_uses() -> None:
    assert TrainingSimulator().parameters is SimulationParameters.shipped().healthy


def test_every_number_says_where_it_comes_from(content: dict) -> None:
    for name, stated in content["healthy"].items():
        assert stated["what"], name
        assert stated["unit"], name
        assert ("runs" in stated and "interval" in stated) if stated["basis"] == "fitted" else stated["source"], name
    for key in ("source", "source_sha256", "runs", "records", "package_version", "libraries"):
        assert content["provenance"][key], key


def test_every_fault_of_loss_or_gradient_has_a_response_at_each_severity(content: dict) -> None:
    own = {name for name, fault in FAULTS.items() if fault.dose is not Fault.dose and not fault.responds_as}
    assert {*content["responses"]} == own
    for by_severity in content["responses"].values():
        assert tuple(by_severity) == SEVERITIES


def test_assumptions_named_in_the_file_are_those_of_the_code(content: dict) -> None:
    assert {*content["assumed_elsewhere"]} == {*ELSEWHERE}
    stated = content["assumed_elsewhere"]
    assert stated["step_time_s"]["value"] == {name: item.step_time_s for name, item in ARCHITECTURES.items()}
    for name, assumption in ELSEWHERE.items():
        assert stated[name]["value"] == pytest.approx(assumption.value) or stated[name]["value"] == assumption.value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 99),
        (("healthy", "worker_spread", "value"), -1.0),
        (("healthy", "worker_spread", "value"), None),
        (("healthy", "benign_spike_held_out", "value"), 1.5),
        (("healthy", "mix_shift_steps", "value"), [700, 150]),
        (("healthy", "wobble_correlation_steps", "value"), 0.0),
        (("healthy", "unknown"), {"value": 1.0}),
        (("responses", "LR_SPIKE", "low", "fields", "time_constant_steps", "value"), 0.0),
        (("responses", "LR_SPIKE", "low", "fields", "collapse_share", "value"), 2.0),
    ],
)
def test_a_file_that_makes_no_sense_is_the_users_error(
    content: dict, path: tuple, value: object, tmp_path: Path
) -> None:
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match="holds no parameters of the simulator"):
        SimulationParameters.read(file)


def test_a_sound_file_is_read(content: dict, tmp_path: Path) -> None:
    content["healthy"]["worker_spread"]["value"] = 0.123
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(content))
    assert SimulationParameters.read(file).healthy.worker_spread == 0.123
