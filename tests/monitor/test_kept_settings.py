"""Settings that a run is meant to keep: which changes are news, in an optimizer, in a model, over a resume."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rmetric.advice import MODES
from rmetric.diagnosis import diagnose
from rmetric.monitor import Alert, TrainingMonitor
from rmetric.monitor.changes import SettingChange
from rmetric.monitor.kept_settings import KEPT, KeptSettings
from rmetric.monitor.parameters import ModelParameters
from tests.helpers import lines_of
from tests.monitor.common import train


class InEachStep(KeptSettings):
    """Measured as a monitor does: it looks at the gradients, and so at which parameters are trained, before."""

    def measure(self) -> list[SettingChange]:
        self._parameters.refresh()
        return super().measure()


def made(groups: int = 1, **settings: Any) -> tuple[nn.Sequential, torch.optim.Optimizer, KeptSettings]:
    """A model with dropout and batch norm, an optimizer of so many groups, and what is watched of them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 2))
    tensors = list(model.parameters())
    parts = [{"params": tensors[:1]}, {"params": tensors[1:]}] if groups == 2 else tensors
    optimizer = torch.optim.AdamW(parts, lr=1e-3, **{"weight_decay": 0.01, **settings})
    return model, optimizer, InEachStep(optimizer, model, ModelParameters(model))


def keep(watched: KeptSettings, times: int = KEPT) -> None:
    for _ in range(times):
        assert watched.measure() == []


def put(optimizer: torch.optim.Optimizer, **settings: Any) -> None:
    for group in optimizer.param_groups:
        group.update(settings)


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        ({"weight_decay": 10.0}, SettingChange("weight_decay", 0.01, 10.0)),
        ({"weight_decay": 0}, SettingChange("weight_decay", 0.01, 0.0)),
        ({"betas": (0.99, 0.999)}, SettingChange("betas[0]", 0.9, 0.99)),
        ({"betas": (0.0, 0.999)}, SettingChange("betas[0]", 0.9, 0.0)),
        ({"eps": 1e-3}, SettingChange("eps", 1e-8, 1e-3)),
        ({"maximize": True}, SettingChange("maximize", "False", "True")),
    ],
)
def test_an_abrupt_change_is_told_of_once_with_both_values(settings: dict[str, Any], change: SettingChange) -> None:
    _, optimizer, watched = made()
    keep(watched)
    put(optimizer, **settings)
    assert watched.measure() == [change]
    keep(watched, 3 * KEPT)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"lr": 1.0}, KEPT),
        ({"weight_decay": 0.02}, KEPT),
        ({"betas": (0.95, 0.999)}, KEPT),
        ({"weight_decay": 10.0}, KEPT - 1),
    ],
)
def test_learning_rates_small_changes_and_what_was_not_kept_are_no_news(settings: dict[str, Any], kept: int) -> None:
    _, optimizer, watched = made()
    keep(watched, kept)
    put(optimizer, **settings)
    keep(watched)


def test_what_moves_gradually_is_a_schedule_however_far_it_goes() -> None:
    _, optimizer, watched = made()
    for step in range(200):
        put(optimizer, weight_decay=0.01 * 1.03**step, betas=(0.9 - 0.004 * step, 0.999))
        assert watched.measure() == []


def test_what_alternates_is_told_of_once_and_that_it_is_back_is_no_news_of_its_own() -> None:
    _, optimizer, watched = made()
    told, back = [], []
    for step in range(20 * KEPT):
        put(optimizer, weight_decay=0.1 if step // (2 * KEPT) % 2 else 0.0)
        told += watched.measure()
        back += watched.taken_back
    assert told == [SettingChange("weight_decay", 0.0, 0.1)]
    assert back == [SettingChange("weight_decay", 0.1, 0.0)]


def test_a_resumed_run_knows_what_is_to_be_taken_back() -> None:
    _, optimizer, watched = made()
    keep(watched)
    put(optimizer, weight_decay=10.0)
    watched.measure()
    _, optimizer, resumed = made(weight_decay=10.0)
    resumed.load_state_dict(json.loads(json.dumps(watched.state_dict())))
    keep(resumed, 2)
    put(optimizer, weight_decay=0.01)
    assert resumed.measure() == [] and resumed.taken_back == [SettingChange("weight_decay", 10.0, 0.01)]


def test_all_groups_together_are_one_change_and_one_group_alone_is_one_too() -> None:
    _, optimizer, watched = made(groups=2)
    keep(watched)
    put(optimizer, weight_decay=10.0)
    assert watched.measure() == [SettingChange("weight_decay", 0.01, 10.0)]
    keep(watched)
    optimizer.param_groups[1]["weight_decay"] = 0.5
    assert watched.measure() == [SettingChange("weight_decay", 10.0, 0.5)]


def test_a_group_that_comes_later_and_tensors_are_no_change() -> None:
    _, optimizer, watched = made(groups=2)
    keep(watched)
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))], "weight_decay": 9.0})
    keep(watched)
    put(optimizer, weight_decay=torch.tensor([1.0, 2.0]))  # to read it would wait for a device
    keep(watched)


def test_modules_that_no_longer_train_are_told_of_and_new_modules_are_not() -> None:
    model, _, watched = made()
    keep(watched)
    model.append(nn.Linear(2, 2))
    keep(watched)
    model[2].eval()
    assert watched.measure() == [SettingChange(MODES, "0", "1")]
    keep(watched)
    model.train()
    keep(watched)


def test_modules_that_change_their_mode_as_layers_are_frozen_and_unfrozen_are_not_told_of() -> None:
    model, _, watched = made()
    for training in (False, True, False):
        keep(watched)
        model[:2].train(training).requires_grad_(training)
        assert watched.measure() == []
    keep(watched)
    model.eval()
    assert watched.measure() == [SettingChange(MODES, "2", "5")]


def test_a_run_that_is_resumed_right_before_layers_are_frozen_knows_that_their_modes_are_meant() -> None:
    _, _, watched = made()
    keep(watched)
    model, _, resumed = made()
    resumed.load_state_dict(json.loads(json.dumps(watched.state_dict())))
    model[:2].train(False).requires_grad_(False)
    assert resumed.measure() == []


def test_modules_left_in_evaluation_mode_are_told_of_though_layers_are_frozen_in_turn() -> None:
    model, _, watched = made()
    for step in range(2 * KEPT):  # two networks, each trained in every second step
        model[0].requires_grad_(step % 2 == 0)
        assert watched.measure() == []
    model[0].requires_grad_()
    model.eval()
    assert watched.measure() == [SettingChange(MODES, "0", "5")]


def test_settings_from_a_file_of_settings_are_lists_and_watched_as_well() -> None:
    _, optimizer, watched = made()
    put(optimizer, betas=[0.9, 0.999])
    keep(watched)
    optimizer.param_groups[0]["betas"][0] = 0.99
    assert watched.measure() == [SettingChange("betas[0]", 0.9, 0.99)]


def test_tensors_in_settings_are_not_looked_into() -> None:
    _, optimizer, watched = made()
    for _ in range(3 * KEPT):
        put(optimizer, betas=(torch.rand(2), torch.rand(2)))
        assert watched.measure() == []


def test_nothing_grows_with_a_schedule_in_stairs() -> None:
    _, optimizer, watched = made()
    for step in range(2000):
        put(optimizer, weight_decay=0.01 + 1e-6 * (step // KEPT))
        assert watched.measure() == []
    assert len(str(watched.state_dict())) < 2000


def test_a_resumed_run_is_told_of_what_it_was_started_with_otherwise() -> None:
    _, _, watched = made()
    keep(watched)
    _, optimizer, resumed = made(weight_decay=0.5)
    resumed.load_state_dict(json.loads(json.dumps(watched.state_dict())))
    assert resumed.measure() == [SettingChange("weight_decay", 0.01, 0.5)]
    keep(resumed)
    put(optimizer, weight_decay=0.01)  # as it was before
    keep(resumed)


def evaluating_in(steps: range, log: Path) -> list[Alert]:
    """Alerts of a training whose model is in evaluation mode in these steps."""
    model, optimizer, _ = made()
    alerts: list[Alert] = []
    with TrainingMonitor(model, optimizer, log=log, on_alert=alerts.append, hardware=None, announce=False) as monitor:
        for step in range(1, 60):
            model.train(step not in steps)
            train(monitor, model, optimizer, [step])
    return alerts


def test_a_monitor_warns_in_the_step_itself_and_its_log_says_what_changed(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    alerts = evaluating_in(range(40, 60), log)
    assert [(alert.step, alert.cause) for alert in alerts] == [(40, "setting_changed")]
    assert f"{MODES} changed from 0 to 5" in alerts[0].message and "evaluation mode" in alerts[0].message
    lines = lines_of(log.read_bytes())
    changed = [line for line in lines if line["event"] == "SETTING_CHANGED"]
    assert changed == [{"event": "SETTING_CHANGED", "step": 40, "setting": MODES, "before": "0", "now": "5"}]
    assert [line["step"] for line in lines if line.get("settings_changed")] == [40]
    (finding,) = diagnose(log).findings
    assert (finding.name, finding.step) == ("SETTING_CHANGED", 40)
    assert finding.severity == "warning" and f"at step 40: {MODES} changed from 0 to 5" in finding.sentence


def test_a_mode_that_is_set_right_again_stands_in_the_log_and_the_finding_has_passed(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    assert [alert.step for alert in evaluating_in(range(40, 43), log)] == [40]
    lines = lines_of(log.read_bytes())
    changed = [(line["step"], line["before"], line["now"]) for line in lines if line["event"] == "SETTING_CHANGED"]
    assert changed == [(40, "0", "5"), (43, "5", "0")]
    (finding,) = diagnose(log).findings
    assert (finding.name, finding.severity) == ("SETTING_CHANGED", "note")
