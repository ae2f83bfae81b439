"""A diagnosis says each thing once, with step, numbers and advice; from logs, frames and runs alike."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import rmetric
from rmetric.advice import ADVICE, RATE_JUMP, RATE_OF_0
from rmetric.detectors import DEFAULT_DETECTORS, make_detector
from rmetric.diagnosis import Diagnosis, Examination, diagnose, diagnose_runs
from rmetric.diagnosis.events import PART_RECORDS, EventSeeker
from rmetric.diagnosis.new_records import NewRecords
from rmetric.diagnosis.not_judged import NEEDS
from rmetric.errors import UserError
from rmetric.importers import portions_of
from rmetric.log_reader import observations_of
from rmetric.measurements import MEASUREMENTS
from rmetric.records import Observations, Run
from rmetric.states import RECOGNISERS
from tests.diagnosis.runs import losses, norms, run_of

REAL_RUNS = sorted((Path(__file__).parents[1] / "data" / "real_runs").glob("*.jsonl"))


def in_pieces(run: Observations, records: int) -> Diagnosis:
    """The diagnosis of a run of which so many records are seen at a time."""
    examination = Examination()
    for begin in range(0, len(run), records):
        examination.extend(run.rows(slice(begin, begin + records)))
    return examination.diagnosis("run")


def test_a_healthy_run_has_no_finding() -> None:
    found = diagnose(run_of(losses(), norms()))
    assert found.healthy
    assert found.records == 400
    assert found.severity is None


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        ({"step": 410, "reason": "WORKER_LOST"}, (410, "the log says that the run failed: WORKER_LOST")),
        ({"step": [1], "reason": "\x1b[31m"}, (399, "the log says that the run failed")),
    ],
)
def test_a_failure_that_the_log_states_is_an_error(failure: dict[str, Any], told: tuple[int, str]) -> None:
    line = {"event": "EXPERIMENT_FAILURE"} | failure
    found = diagnose(Run("run", {}, run_of(losses(), norms()), [line]))
    (finding,) = found.findings
    assert not found.healthy and (finding.name, finding.severity) == ("FAILED", "error")
    assert (finding.step, finding.sentence) == told
    assert f"{told[1]} (it says so itself)" in str(found)
    goes_on = diagnose(Run("run", {}, run_of(losses(), norms()), [line, {"event": "EXPERIMENT_START"}]))
    assert goes_on.healthy


def test_a_failure_that_is_found_is_told_once() -> None:
    loss = losses()
    loss[300:] = np.inf
    line = {"event": "EXPERIMENT_FAILURE", "step": 300, "reason": "NAN_LOSS"}
    found = diagnose(Run("run", {}, run_of(loss), [line])).findings
    assert [finding.name for finding in found] == ["DEAD"]


def test_a_loss_that_never_was_finite_is_one_finding() -> None:
    (finding,) = diagnose(run_of(np.full(50, np.inf))).findings
    assert (finding.name, finding.severity, finding.step) == ("DEAD", "error", 0)


def test_a_run_without_records_is_not_called_healthy() -> None:
    found = diagnose(run_of([]))
    assert not found.healthy
    assert found.not_judged == {"everything": "there is no record"}


def test_of_an_agent_it_is_said_that_its_rewards_are_what_tells() -> None:
    loss = losses()
    loss[200:] += 3.0
    run = run_of(loss, norms())
    rewards = np.linspace(0.0, 1.0, len(loss))
    found = diagnose(Observations(run.step, {**run.columns, "reward": rewards}))
    assert "LOSS_RISE" not in [finding.name for finding in found.findings]
    assert "evidence only where these fall" in found.not_judged["the loss, and gradients that change by degrees"]


def test_a_loss_that_is_lost_is_one_finding_with_its_first_step() -> None:
    loss, norm = losses(), norms()
    loss[300:], norm[300:] = np.inf, np.inf
    (finding,) = diagnose(run_of(loss, norm)).findings
    assert (finding.name, finding.severity, finding.step, finding.until) == ("DEAD", "error", 300, 399)
    assert "step 300" in finding.sentence and "a bad batch" in finding.causes


def test_gradients_of_0_now_and_then_are_healthy_where_a_record_has_the_mean_loss_of_several_steps() -> None:
    """As of a Trainer whose margin most batches keep: the loss is a mean, the gradient that of the last step."""
    steps, draw = 50 * np.arange(1, 301), np.random.default_rng(0).random(300)
    loss, norm = 0.8 * np.exp(-np.arange(300) / 40.0) + 0.005 * (1.0 + draw), 0.5 + 0.1 * draw
    norm[(draw < np.linspace(-0.2, 0.5, 300))] = 0.0
    assert diagnose(Observations(steps, {"training_loss": loss, "grad_norm": norm})).healthy
    norm[200:] = 0.0  # for good
    assert diagnose(Observations(steps, {"training_loss": loss, "grad_norm": norm})).findings[0].name == "DEAD"


def test_an_event_is_the_begin_of_each_state_that_began_with_it() -> None:
    loss, norm = losses(), norms()
    rise = np.exp(np.arange(100) / 12.0)
    loss[300:], norm[300:] = 10.0 * rise, 100.0 * norm[300:] * rise
    found = {finding.name: finding for finding in diagnose(run_of(loss, norm)).findings}
    assert {"WORSE_LEVEL", "GRADIENT_GROWS"} <= found.keys()
    assert all(abs(found[name].step - 300) <= 8 for name in ("WORSE_LEVEL", "GRADIENT_GROWS"))


@pytest.mark.parametrize(("before", "told"), [(20, 20), (100, 50)])
def test_a_finding_says_of_how_many_records_the_median_before_is(before: int, told: int) -> None:
    loss = losses()
    loss[before] = np.inf
    (finding,) = diagnose(run_of(loss)).findings
    assert f"before (median of {told} records)" in finding.sentence


def test_a_spike_that_passes_is_a_note() -> None:
    loss = losses()
    loss[200:210] += 3.0
    (finding,) = diagnose(run_of(loss, norms())).findings
    assert (finding.name, finding.severity) == ("LOSS_RISE", "note")
    assert 200 <= finding.step <= 203
    assert finding.numbers["value"] == pytest.approx(loss[finding.step])
    assert finding.numbers["highest"] == loss[finding.step : finding.until + 1].max()
    assert finding.numbers["before"] == pytest.approx(np.median(loss[150:200]), abs=0.02)


@pytest.mark.parametrize(("after", "severity"), [(2, "error"), (3, "warning")])
def test_one_record_that_is_over_has_passed_however_near_the_end(after: int, severity: str) -> None:
    loss = losses()
    loss[399 - after] = np.inf
    (finding,) = diagnose(run_of(loss, norms())).findings
    assert (finding.name, finding.until, finding.severity) == ("NOT_FINITE", 399 - after, severity)


@pytest.mark.parametrize(("lasts", "severity"), [(1, "note"), (2, "warning")])
def test_a_gradient_that_is_not_finite_once_is_a_step_that_half_precision_leaves_out(lasts: int, severity: str) -> None:
    norm = norms()
    norm[200 : 200 + lasts] = np.inf
    (finding,) = diagnose(run_of(losses(), norm)).findings
    assert (finding.name, finding.severity) == ("NOT_FINITE", severity)


def test_what_was_not_measured_since_has_not_passed() -> None:
    norm = np.where(np.arange(355) % 10, np.nan, norms()[:355])
    norm[350] = np.inf
    (finding,) = diagnose(run_of(losses()[:355], norm)).findings
    assert (finding.name, finding.severity) == ("NOT_FINITE", "error")


@pytest.mark.parametrize(("after", "severity"), [(6, "warning"), (12, "note")])
def test_what_had_several_alerts_has_passed_after_as_many_quiet_records(after: int, severity: str) -> None:
    norm = norms()
    norm[392 - after : 400 - after] *= 30.0
    (finding,) = diagnose(run_of(losses(), norm)).findings
    quiet = 399 - finding.until
    assert (finding.name, finding.severity) == ("GRADIENT_RISE", severity)
    assert (quiet >= finding.numbers["alerts"]) == (severity == "note") and 3 <= quiet < 50


def test_what_comes_back_and_passes_each_time_has_passed_at_the_end() -> None:
    norm = norms()
    norm[100:400:10] = np.inf
    (finding,) = diagnose(run_of(losses(), norm)).findings
    assert (finding.severity, finding.until, finding.numbers["alerts"]) == ("warning", 390, 30)


def test_what_the_detector_has_got_used_to_is_not_over() -> None:
    norm = norms()
    norm[365:] *= 30.0
    (finding,) = diagnose(run_of(losses(), norm)).findings
    assert (finding.name, finding.severity) == ("GRADIENT_RISE", "warning")


@pytest.mark.parametrize(("until", "severity"), [(300, "note"), (800, "warning")])
def test_steps_that_stay_slow_have_not_passed(until: int, severity: str) -> None:
    times = 0.5 * np.exp(np.random.default_rng(3).normal(0.0, 0.05, 800))
    times[250:until] *= 4.0
    run = run_of(losses(800), norms(800))
    (finding,) = diagnose(Observations(run.step, {**run.columns, "step_time_s": times})).findings
    assert (finding.name, finding.severity) == ("SLOW_STEPS", severity)
    assert (finding.until == 799) == (severity == "warning")


def test_updates_that_were_back_are_over_for_good_though_they_rise_later_by_degrees() -> None:
    sizes = 1e-3 * norms(800) * np.exp(np.clip(np.arange(800) - 400.0, 0.0, None) / 300.0)
    sizes[300:340] *= 3.0
    (finding,) = diagnose(run_of(losses(800), update_rms=sizes)).findings
    assert (finding.name, finding.severity, finding.step) == ("UPDATE_RISE", "note", 300)
    assert finding.until < 340 and "at the end" not in finding.sentence


@pytest.mark.parametrize("name", ["step_time_s", "update_rms"])
def test_what_dips_for_a_while_and_is_up_again_to_the_end_has_not_passed(name: str) -> None:
    at = np.arange(2000)
    values = 0.2 * norms(2000) * np.where((at < 600) | ((at >= 900) & (at < 960)), 1.0, 10.0)
    (finding,) = diagnose(Observations(at, {"training_loss": losses(2000), name: values})).findings
    assert (finding.severity, finding.until) == ("warning", 1999) and 600 <= finding.step < 610


@pytest.mark.parametrize(
    ("halves_in", "leap", "larger", "told", "jump"),
    [
        (np.inf, 1.0, 30.0, "update RMS 0.0", False),
        (32.0, 1.0, 1.6, "update RMS / learning rate 0.1", False),
        (np.inf, 30.0, 1.0, "learning rate 0.3 at step 300; 0.01 before", True),
    ],
    ids=["update", "by the rate", "rate"],
)
def test_of_updates_that_rose_what_did_is_told(
    halves_in: float, leap: float, larger: float, told: str, jump: bool
) -> None:
    """A monitor knows the learning rate of the next update, and the size of the last one."""
    at = np.arange(400.0)
    rates = 0.01 * 0.5 ** (np.maximum(at - 260.0, 0.0) / halves_in) * np.where(at < 300, 1.0, leap)
    sizes = 0.1 * np.append(rates[0], rates[:-1]) * norms() * np.where(at < 300, 1.0, larger)
    (finding,) = diagnose(run_of(losses(), update_rms=sizes, learning_rate=rates)).findings
    assert finding.name == "UPDATE_RISE" and finding.sentence.startswith(told)
    assert finding.numbers["value"] > finding.numbers["before"]
    assert (RATE_JUMP in finding.causes) == jump


@pytest.mark.parametrize(("rate", "possible"), [(1.0, False), (0.0, True), (math.nan, True)])
def test_a_learning_rate_that_is_known_rules_out_that_it_is_0(rate: float, possible: bool) -> None:
    sizes, rates = 1e-3 * norms(), np.full(400, rate)
    sizes[300:320] = 0.0
    (finding,) = diagnose(run_of(losses(), update_rms=sizes, learning_rate=rates)).findings
    assert finding.name == "ZERO_UPDATE" and (RATE_OF_0 in finding.causes) == possible


def test_of_several_events_the_one_that_lasts_is_the_begin_of_the_finding() -> None:
    times = 0.5 * np.exp(np.random.default_rng(3).normal(0.0, 0.05, 800))
    times[250:350] *= 4.0
    times[600:] *= 8.0
    (finding,) = diagnose(run_of(losses(800), step_time_s=times)).findings
    assert (finding.severity, finding.until) == ("warning", 799) and 600 <= finding.step <= 610
    assert finding.numbers["value"] > 3.0 and finding.sentence.startswith("step time (s) 1.9")
    assert finding.sentence.endswith(f"and it is so at the end; 2 times in all, last at step {finding.step}")


@pytest.mark.parametrize(("rise", "first"), [(3.0, "LOSS_RISE"), (np.inf, "NOT_FINITE")])
@pytest.mark.parametrize(("times", "then"), [(0.0, "ZERO_UPDATE"), (30.0, "UPDATE_RISE")])
def test_another_kind_than_that_of_an_event_that_has_passed_has_a_begin_of_its_own(
    rise: float, first: str, times: float, then: str
) -> None:
    loss, update = losses(), 1e-3 * norms()
    loss[200:204] += rise
    update[230:] *= times
    run = run_of(loss, update_rms=update)
    found = {finding.name: finding for finding in diagnose(run).findings}
    assert found[then].step >= 230 and found[first].until < 210


def test_what_follows_a_setting_that_changed_is_one_event_with_it() -> None:
    norm, changed = norms(), np.zeros(400)
    changed[200], norm[230:240] = 1.0, 30.0
    assert len(diagnose(run_of(losses(), norm, settings_changed=changed)).findings) == 1


def test_steps_that_stay_slow_hide_nothing_of_the_model() -> None:
    times, update = 0.5 * np.exp(np.random.default_rng(3).normal(0.0, 0.05, 400)), 1e-3 * norms()
    times[280:] *= 6.0
    update[285:] *= 4.0
    run = run_of(losses(), update_rms=update, step_time_s=times)
    assert {finding.name for finding in diagnose(run).findings} == {"SLOW_STEPS", "UPDATE_RISE"}


def test_a_loss_that_is_lost_did_not_begin_with_slow_steps() -> None:
    loss, times = losses(), 0.5 * np.exp(np.random.default_rng(3).normal(0.0, 0.05, 400))
    times[200:] *= 4.0
    loss[230:] = np.inf
    run = run_of(loss, step_time_s=times)
    found = {finding.name: finding.step for finding in diagnose(run).findings}
    assert found["DEAD"] == 230 and 200 <= found["SLOW_STEPS"] < 210


def failing_worker(*counts: tuple[int, int, float, float]) -> dict[str, Any]:
    """Columns of 400 healthy records in which hardware fails: from, to, worker, events a record."""
    events, workers = np.zeros(400), np.full(400, np.nan)
    for begin, end, worker, number in counts:
        events[begin:end], workers[begin:end] = number, worker
    return {"training_loss": losses(), "grad_norm": norms(), "hardware_events": events, "event_worker": workers}


def test_of_workers_the_one_with_most_events_is_named() -> None:
    columns = failing_worker((200, 202, 1, 1), (202, 240, 5, 4))
    (finding,) = diagnose(Observations(np.arange(400), columns)).findings
    assert finding.step < 205 and "most by worker 5" in finding.sentence


def test_what_the_model_does_is_remembered_while_a_machine_fails() -> None:
    columns = failing_worker((200, 204, 3, 3))
    columns["grad_norm"][360] = np.inf
    found = {finding.name: finding for finding in diagnose(Observations(np.arange(400), columns)).findings}
    assert found["HARDWARE_EVENTS"].numbers["alerts"] > 150  # one after the other
    assert found["NOT_FINITE"].severity == "note"
    assert found["NOT_FINITE"].numbers["before"] == pytest.approx(np.median(columns["grad_norm"][310:360]))


def test_steps_that_are_slow_hide_no_worker_that_fails() -> None:
    columns = failing_worker((220, 223, 3, 2))
    columns["step_time_s"] = 0.5 * norms() ** 0.5
    columns["step_time_s"][200:] *= 4.0
    found = {finding.name: finding.step for finding in diagnose(Observations(np.arange(400), columns)).findings}
    assert found["SLOW_STEPS"] < 210 and found["HARDWARE_EVENTS"] >= 220


@pytest.mark.parametrize("rise", [0.0, 1.5])  # which hides them as long as they are slow, or not
def test_slow_steps_are_told_by_the_median_that_they_are_judged_by(rise: float) -> None:
    loss, times = losses(), 0.5 * np.exp(np.random.default_rng(3).normal(0.0, 0.02, 400))
    loss[300:306] += rise
    times[300:306] *= 4.0
    run = run_of(loss, step_time_s=times)
    (finding,) = [finding for finding in diagnose(run).findings if finding.name == "SLOW_STEPS"]
    assert finding.severity == "note" and finding.numbers["value"] > 1.5
    assert finding.sentence.startswith(f"step time (s) {finding.numbers['value']:.4g} (median of 9 records) at step 30")


def test_gradients_that_repeat_are_a_finding_of_their_own() -> None:
    agreement = np.random.default_rng(0).normal(0.1, 0.05, 400)
    agreement[250:] = 0.9
    run = run_of(losses(), grad_agreement=agreement)
    (finding,) = diagnose(run).findings
    assert finding.name == "GRADIENT_REPEATS" and 250 < finding.step <= 253
    assert "agreement of the gradient with the steps before 0.9" in finding.sentence
    assert "gradients of an earlier step that are used again" in finding.causes


def test_spikes_of_one_kind_are_one_finding() -> None:
    loss = losses(800)
    for at, rise in ((200, 3.0), (400, 9.0), (600, 27.0)):
        loss[at : at + 6] += rise
    (finding,) = diagnose(run_of(loss, norms(800))).findings
    assert finding.numbers["events"] == 3
    assert "3 times" in finding.sentence


def test_what_a_run_shows_a_third_time_is_its_way() -> None:
    loss = losses(800)
    for at in (200, 400, 600):
        loss[at : at + 6] += 3.0
    (finding,) = diagnose(run_of(loss, norms(800))).findings
    assert finding.numbers["events"] == 2


@pytest.mark.parametrize("begin", range(250, 262, 2))
def test_a_state_takes_in_the_events_that_it_began_with(begin: int) -> None:
    loss = losses()
    loss[begin:] += 3.0
    (finding,) = diagnose(run_of(loss, norms())).findings
    assert finding.name == "WORSE_LEVEL"
    assert begin <= finding.step <= begin + 3
    assert "it began like this" in finding.sentence


def test_the_advice_on_a_state_names_what_the_run_was_in_before() -> None:
    loss = np.where(np.arange(400) < 200, 1.0, 3.0) * losses()
    loss[350:] = loss[349]  # of a loss that stands still there is no event
    dead, worse = diagnose(run_of(loss)).findings
    assert (dead.name, dead.step, worse.name) == ("DEAD", 349, "WORSE_LEVEL")
    assert 200 <= worse.step <= 203
    assert "it began like this" in worse.sentence and "it began like this" not in dead.sentence
    assert dead.advice.endswith("WORSE_LEVEL began before it: go back to before that.")


@pytest.mark.parametrize(("back", "told"), [(800, {"WORSE_LEVEL": 306}), (370, {"WORSE_LEVEL": 520, "LOSS_RISE": 306})])
def test_a_loss_that_climbs_to_the_end_began_with_its_first_alert_unless_it_came_back(
    back: int, told: dict[str, int]
) -> None:
    """Detectors get used to what climbs: most of it is quiet."""
    at = np.arange(800.0)
    rise = np.clip(at - np.where(at < back, 300.0, 500.0), 0.0, None) / 80.0
    found = diagnose(run_of(losses(800) + rise)).findings
    assert {finding.name: finding.step for finding in found} == pytest.approx(told, abs=20)


@pytest.mark.parametrize(
    ("name", "value", "until", "kind"),
    [("training_loss", np.inf, 305, "NOT_FINITE"), ("update_rms", 0.0, 330, "ZERO_UPDATE"),
     ("update_rms", 0.03, 400, "UPDATE_RISE")],
)  # fmt: skip
def test_what_comes_long_after_the_begin_of_a_state_stands_by_itself(
    name: str, value: float, until: int, kind: str
) -> None:
    columns = {"training_loss": losses(), "update_rms": 1e-3 * norms()}
    columns["training_loss"][100:] += 1.0
    columns[name][300:until] = value
    found = {finding.name: finding.step for finding in diagnose(Observations(np.arange(400), columns)).findings}
    assert found.keys() == {"WORSE_LEVEL", kind}
    assert found["WORSE_LEVEL"] < 110 and found[kind] >= 300


def test_what_comes_in_a_run_that_never_learned_is_told_with_its_step() -> None:
    loss = 2.3 + 0.02 * np.random.default_rng(0).normal(size=400)
    loss[300:303] += 2.0
    found = [(finding.name, finding.severity, finding.step) for finding in diagnose(run_of(loss, norms())).findings]
    assert found == [("NEVER_LEARNS", "error", 0), ("LOSS_RISE", "note", 302)]


@pytest.mark.parametrize("begin", [100, 250])
@pytest.mark.parametrize("stride", [1, 50])
def test_a_state_does_not_begin_with_what_had_passed_by_then(begin: int, stride: int) -> None:
    loss = losses()
    loss[60:65] += 3.0
    loss[begin:] = np.inf
    steps = np.where(np.arange(400) < 100, np.arange(400), 100 + stride * (np.arange(400) - 100))
    found = {finding.name: finding for finding in diagnose(Observations(steps, {"training_loss": loss})).findings}
    assert found["DEAD"].step == steps[begin] and f"not finite at step {steps[begin]:,};" in found["DEAD"].sentence
    assert (found["LOSS_RISE"].step, found["LOSS_RISE"].severity) == (62, "note")


def test_a_learning_rate_that_is_not_finite_is_named() -> None:
    run = run_of(losses(), norms())
    rate = np.where(np.arange(400) < 200, 1e-3, np.inf)
    (finding,) = diagnose(Observations(run.step, {**run.columns, "learning_rate": rate})).findings
    assert (finding.name, finding.step) == ("NOT_FINITE", 200)
    assert finding.sentence.startswith("the learning rate is not finite at step 200")


@pytest.mark.parametrize("at", [130, 300])
def test_each_measurement_that_is_not_finite_is_told_with_its_step(at: int) -> None:
    loss, norm = losses(), norms()
    norm[100], loss[at] = np.inf, np.inf
    (finding,) = diagnose(run_of(loss, norm)).findings
    assert (finding.name, finding.severity, finding.step, finding.until) == ("NOT_FINITE", "warning", 100, at)
    for told in ("the gradient norm is not finite at step 100", f"the loss is not finite at step {at}"):
        assert told in finding.sentence
    assert "times in all" not in finding.sentence


@pytest.mark.parametrize(
    ("grave", "kind", "told"),
    [
        ({"training_loss": np.inf}, "NOT_FINITE", "the loss is not finite at step 208 after an alert at step 20"),
        ({"grad_norm": 0.0}, "ZERO_GRADIENT", "the gradient norm is exactly 0 at step 208 after an alert at step 20"),
    ],
)
def test_a_grave_kind_is_told_with_the_alert_before_it(grave: dict[str, float], kind: str, told: str) -> None:
    columns = {"training_loss": losses(), "grad_norm": norms()}
    columns["training_loss"][200:208] += 3.0
    for name, value in grave.items():
        columns[name][208:212] = value
    (finding,) = diagnose(Observations(np.arange(400), columns)).findings
    first = f"{finding.step} (loss {columns['training_loss'][finding.step]:.4g})"
    assert finding.name == kind and finding.sentence.startswith(f"{told[:-2]}{first}")


def test_a_loss_that_is_not_finite_is_graver_than_a_gradient() -> None:
    loss, norm = losses(), norms()
    norm[200:206], loss[202:206] = np.inf, np.inf
    (finding,) = diagnose(run_of(loss, norm)).findings
    began = "after an alert at step 200 (the gradient norm is not finite)"
    assert finding.step == 200 and finding.sentence.startswith(f"the loss is not finite at step 202 {began}")


def test_of_what_is_not_finite_its_own_records_are_counted() -> None:
    loss = losses()
    loss[200:220] *= 10.0
    loss[220:230] = np.nan
    (finding,) = diagnose(run_of(np.where(np.isnan(loss), np.inf, loss), norms())).findings
    assert finding.name == "NOT_FINITE" and "alerts in 10 records" in finding.sentence


@pytest.mark.parametrize("stride", [1, 100])
def test_what_a_record_stands_for_changes_nothing_but_steps(stride: int) -> None:
    loss = losses()
    loss[200:206] += 3.0
    (finding,) = diagnose(run_of(loss, norms(), stride)).findings
    assert (finding.name, finding.severity) == ("LOSS_RISE", "note")


def test_portions_change_nothing() -> None:
    loss = losses()
    loss[200:210] += 3.0
    whole = run_of(loss, norms())
    assert in_pieces(whole, 37) == diagnose(whole)


@pytest.mark.slow
def test_records_that_are_taken_in_by_whole_columns_change_nothing() -> None:
    loss, norm = losses(4 * PART_RECORDS), norms(4 * PART_RECORDS)
    for at in (PART_RECORDS // 2, 2 * PART_RECORDS - 3, 3 * PART_RECORDS + 9):
        loss[at : at + 10] += 3.0
        norm[at : at + 10] *= 20.0
    one_by_one, at_once = EventSeeker(), EventSeeker()
    begun = [event for record in run_of(loss, norm) if (event := one_by_one.update(record)) is not None]
    assert repr([*at_once.extend(run_of(loss, norm))]) == repr(begun)  # a rate that is not measured is NaN
    assert len(begun) == 2  # the third is no worse
    assert (repr(at_once.events), at_once.records) == (repr(one_by_one.events), one_by_one.records)


def test_what_cannot_be_judged_is_named_with_the_reason() -> None:
    missing = diagnose(run_of(losses(60))).not_judged
    assert missing["gradients"] == "the log has no gradient norm"
    assert missing["NEVER_LEARNS"] == (
        "needs 100 records of a training loss that is above 0 throughout, no mere noise, not from late in a run, "
        "of which a fall by 6 % would show"
    )
    assert "WORSE_LEVEL" not in missing
    loss = losses()
    loss[305] = 0.0
    missing = diagnose(run_of(loss)).not_judged
    assert missing["NEVER_LEARNS"].endswith("would show; it is 0 at step 305")
    assert "WORSE_LEVEL" not in missing
    loss[305] = -1.0
    missing = diagnose(run_of(loss)).not_judged
    assert missing["WORSE_LEVEL"].endswith("never below 0, nor 0 at first; it is -1 at step 305")


def test_too_few_values_of_a_measurement_are_told_and_one_that_ends_before_the_log() -> None:
    at = np.arange(400)
    seldom, ended = np.where(at % 20, np.nan, norms()), np.where(at < 300, losses(), np.nan)
    times = np.where(at < 300, norms(), np.nan)
    columns = {"training_loss": ended, "grad_norm": seldom, "update_rms": np.full(400, 1e-3), "step_time_s": times}
    run = Observations(at, columns)
    told = diagnose(run).not_judged
    assert told["gradients"] == "33 values tell what is usual; the log has 20 of the gradient norm"
    assert told["loss after step 299"] == "the log goes on to step 399, without a training loss"
    assert told["hardware after step 299"] == "the log goes on to step 399, without a step time"
    assert not [about for about in told if about.startswith("updates")]


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([*range(0, 2000, 10), *range(3000, 5000, 10)], "there is a gap in the records before step 3,000"),
        ([*range(0, 2000, 10), *range(2090, 22090, 100)], "records came at another interval from step 2,090 on"),
        ([*range(0, 2000, 10), 1991, *range(2000, 3990, 10)], "a record came in between the usual ones at step 1,991"),
        (range(0, 4000, 10), None),
        ([*range(0, 3990, 10), 3983], None),  # the end is off the grid
    ],
)
@pytest.mark.parametrize("portion", [1, 400])
def test_records_after_an_unusual_interval_are_told_of(steps: Sequence[int], told: str | None, portion: int) -> None:
    run = Observations(np.array(steps), dict(run_of(losses(), norms()).columns))
    anew = "what is usual was learned anew from there on"
    assert in_pieces(run, portion).notes == ((f"{told}: {anew}",) if told else ())


@pytest.mark.parametrize("announced", [False, True])
def test_a_loss_on_another_scale_is_no_explosion_of_what_had_passed_long_before(announced: bool) -> None:
    later = np.arange(400) >= 300
    norm = norms()
    norm[150] = np.inf
    columns = {"training_loss": losses() * np.where(later, 1e5, 1.0), "grad_norm": norm}
    planned = {"planned_changes": np.where(np.arange(400) == 300, 1.0, np.nan)} if announced else {}
    found = {finding.name: finding for finding in diagnose(Observations(np.arange(400), columns | planned)).findings}
    assert found["NOT_FINITE"].severity == "note" and "exploded" not in found["NOT_FINITE"].sentence
    assert ("LOSS_RISE" in found or "WORSE_LEVEL" in found) is not announced


@pytest.mark.parametrize("times, told", [(3.0, ["2.6"]), (1.2, []), (1 / 3, [])])
def test_steps_that_get_slower_by_degrees_are_told_of(times: float, told: list[str]) -> None:
    seconds = 0.5 * np.linspace(1.0, times, 5_000)
    seconds[::100] += 60.0  # checkpoints
    run = run_of(losses(5_000), step_time_s=seconds)
    found = diagnose(run)
    assert found.notes == tuple(
        f"a step takes {factor} times as long in the last tenth of the run (1.45 s) as in the first (0.551 s)"
        for factor in told
    )


def test_every_kind_has_causes_and_advice() -> None:
    read = {name for detector in DEFAULT_DETECTORS for name in make_detector(detector).reads}
    assert read <= MEASUREMENTS.keys()
    library = Path(rmetric.__file__).parent
    files = [*(library / "diagnosis").glob("*.py"), library / "states" / "__init__.py"]
    texts = {getattr(node, "value", None) for file in files for node in ast.walk(ast.parse(file.read_text()))}
    kinds = {text for text in texts if isinstance(text, str) and re.fullmatch("[A-Z_]{4,}", text)}
    assert kinds - {*rmetric.states.__all__} == ADVICE.keys()
    assert RECOGNISERS.keys() == NEEDS.keys() < ADVICE.keys()
    assert all(advice.causes and advice.action.endswith(".") for advice in ADVICE.values())


@pytest.mark.parametrize("log", REAL_RUNS, ids=lambda log: log.stem)
def test_findings_of_real_runs_do_not_repeat_one_another(log: Path) -> None:
    findings = diagnose(log).findings
    assert len({finding.name for finding in findings}) == len(findings)
    assert ("none_twin" in log.stem) <= (not findings)
    for finding in findings:
        assert finding.step <= finding.until
        assert finding.causes == tuple(dict.fromkeys(finding.causes))
        assert 0.0 <= finding.sure <= 1.0 or finding.name == "ZERO_GRADIENT"


def test_a_real_gradient_that_breaks_is_found_at_its_step() -> None:
    (log,) = [log for log in REAL_RUNS if "gflip_30_False" in log.stem]
    run = rmetric.read_run(log)
    (finding,) = diagnose(log).findings
    broken = run.observations.step[np.isinf(run.observations["grad_norm"])]
    assert (finding.name, finding.severity, finding.step) == ("NOT_FINITE", "error", broken[0])


def test_log_run_and_frame_give_the_same_findings() -> None:
    log = next(log for log in REAL_RUNS if "labels_0p5_20" in log.stem)
    run = rmetric.read_run(log)
    observations = run.observations
    frame = pd.DataFrame({"step": observations.step, **observations.columns})
    assert diagnose(log).findings == diagnose(run).findings == diagnose(frame).findings


def test_a_polars_frame_tells_nan_from_gaps() -> None:
    polars = pytest.importorskip("polars")
    loss: list[float | None] = [*losses(100), None, float("nan"), float("nan"), float("nan")]
    found = diagnose(polars.DataFrame({"iteration": range(104), "train/loss": loss}))
    assert found.records == 103
    assert [finding.step for finding in found.findings] == [101]


def test_a_nan_of_pandas_is_not_finite_only_where_every_row_had_a_number() -> None:
    dense = pd.DataFrame({"step": range(130), "loss": [*losses(120), *[np.nan] * 10]})
    assert diagnose(dense).findings[0].step == 120
    assert "not finite" in diagnose(dense).notes[0]
    sparse = pd.DataFrame({"step": range(400), "loss": losses(), "val_loss": losses()})
    sparse.loc[sparse.index % 10 != 0, "loss"] = np.nan
    assert diagnose(sparse).healthy
    assert diagnose(sparse).notes == ()


def test_a_frame_without_a_step_counts_rows_and_says_so() -> None:
    found = diagnose(pd.DataFrame({"loss": losses()}))
    assert (found.first_step, found.last_step) == (1, 400)
    assert any("rows count" in note for note in found.notes)


def test_a_frame_of_no_use_is_an_error_that_names_its_columns() -> None:
    with pytest.raises(UserError, match="'accuracy'"):
        diagnose(pd.DataFrame({"accuracy": [1.0, 2.0]}))


def test_columns_of_a_frame_can_be_named() -> None:
    frame = pd.DataFrame({"n": range(400), "objective": losses()})
    assert diagnose(frame, mapping={"step": "n", "training_loss": "objective"}).last_step == 399


def test_other_things_are_no_subject() -> None:
    with pytest.raises(TypeError, match="not int"):
        diagnose(3)


def test_each_run_of_a_file_is_diagnosed() -> None:
    assert [found.run for found in diagnose_runs(REAL_RUNS[0])] == [REAL_RUNS[0].stem]


@pytest.mark.slow
@pytest.mark.parametrize("records", [1, 7, 250])
def test_a_log_read_in_portions_gives_the_diagnosis_of_its_run(records: int) -> None:
    path = next(path for path in REAL_RUNS if "gradient_explosion" in path.name)
    log = next(portions_of(path, records=records))
    examination, new = Examination(), NewRecords()
    for portion in log.portions:
        assert len(portion.step) <= records
        examination.extend(new.of(observations_of(portion)))
    assert examination.diagnosis(path.stem).findings == diagnose(rmetric.read_run(path)).findings


def test_it_shows_itself() -> None:
    loss = losses()
    loss[300:] = np.inf
    found = diagnose(run_of(loss))
    assert "ERROR DEAD, step 300 to 399" in str(found)
    page = found._repr_html_()
    assert page.startswith("<div>")
    assert "DEAD" in page
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["findings"][0]["step"] == 300


def test_a_setting_that_changed_is_named_by_what_the_log_says_and_damaged_lines_say_nothing() -> None:
    changed = np.zeros(300)
    changed[200] = 1.0
    run = run_of(losses()[:300], settings_changed=changed)
    lines: list[dict[str, Any]] = [
        {"event": "SETTING_CHANGED", "step": 200, "setting": "weight_decay", "before": 0.01, "now": 10.0},
        {"event": "SETTING_CHANGED", "step": 200, "setting": "eps\x1b[31m", "before": 0.1, "now": 1.0},
        {"event": "SETTING_CHANGED", "step": [200], "setting": "eps", "before": 0.1, "now": 1.0},
        {"event": "SETTING_CHANGED"},
    ]
    (finding,) = diagnose(Run("run", {}, run, lines)).findings
    assert (finding.name, finding.step) == ("SETTING_CHANGED", 200)
    told = "a setting changed abruptly at step 200: weight_decay changed from 0.01 to 10"
    assert finding.sentence == f"{told}, and the log does not say that it was taken back"
    assert finding.severity == "warning" and finding.until == 299
    back = {"event": "SETTING_CHANGED", "step": 220, "setting": "weight_decay", "before": 10.0, "now": 0.01}
    (finding,) = diagnose(Run("run", {}, run, [*lines, back])).findings
    assert (finding.sentence, finding.severity, finding.until) == (told, "note", 200)
    assert "if the change is meant, nothing has to be done" in finding.advice
    assert math.isnan(finding.sure)  # healthy runs do that as well
    (bare,) = diagnose(run).findings
    assert bare.sentence == "a setting changed abruptly at step 200"


@pytest.mark.parametrize(
    ("at", "then"),
    [
        (220, ", weight_decay changed from 0.01 to 0.1 at step 220, and the log does not say that weight_decay was "
              "taken back"),
        (290, "; a setting changed abruptly at step 290: weight_decay changed from 0.01 to 0.1, and the log does not "
              "say that it was taken back; 2 times in all, last at step 290"),
    ],
)  # fmt: skip
def test_each_setting_that_changed_is_told_with_its_step_and_what_is_kept_by_name(at: int, then: str) -> None:
    changes = [(200, "momentum", 0.9, 0.99), (205, "momentum", 0.99, 0.9), (at, "weight_decay", 0.01, 0.1)]
    changed, names = np.zeros(300), ("step", "setting", "before", "now")
    changed[[step for step, *_ in changes]] = 1.0
    run = run_of(losses()[:300], settings_changed=changed)
    lines = [{"event": "SETTING_CHANGED"} | dict(zip(names, change, strict=True)) for change in changes]
    (finding,) = diagnose(Run("run", {}, run, lines)).findings
    first = "a setting changed abruptly at step 200: momentum changed from 0.9 to 0.99"
    assert finding.sentence == f"{first}, momentum changed from 0.99 to 0.9 at step 205{then}"


def test_settings_are_not_told_of_machines() -> None:
    times, changed = 0.5 * norms() ** 0.5, np.zeros(400)
    times[200:300] *= 4.0
    changed[220] = 1.0
    line = {"event": "SETTING_CHANGED", "step": 220, "setting": "momentum", "before": 0.9, "now": 0.99}
    run = Run("run", {}, run_of(losses(), step_time_s=times, settings_changed=changed), [line])
    found = {one.name: one for one in diagnose(run).findings}
    assert found["SETTING_CHANGED"].severity == "warning"
    assert found["SLOW_STEPS"].severity == "note" and "momentum" not in found["SLOW_STEPS"].sentence


@pytest.mark.parametrize(("rate_at_the_end", "severity"), [(0.03, "warning"), (0.001, "note")])
def test_a_setting_that_changed_is_named_in_another_event_and_records_say_whether_a_rate_is_back(
    rate_at_the_end: float, severity: str
) -> None:
    norm, rates = norms(), np.full(400, 0.001)
    norm[200:210] *= 30.0
    rates[200:] = np.linspace(0.03, rate_at_the_end, 200)
    line = {"event": "SETTING_CHANGED", "step": 206, "setting": "learning_rate", "before": 0.001, "now": 0.03}
    found = diagnose(Run("run", {}, run_of(losses(), norm, learning_rate=rates), [line])).findings
    assert [(finding.name, finding.severity) for finding in found] == [("GRADIENT_RISE", severity)]
    assert "; meanwhile learning_rate changed from 0.001 to 0.03" in found[0].sentence


@pytest.mark.parametrize(("times", "told"), [(1.05, True), (1.0, False)])
def test_a_learning_rate_that_rose_before_a_rise_is_named(times: float, told: bool) -> None:
    norm, rates = norms(), 0.001 * times ** np.maximum(np.arange(400) - 160.0, 0.0)
    norm[200:] *= 30.0
    (finding,) = diagnose(run_of(losses(), norm, learning_rate=rates)).findings
    assert finding.name == "GRADIENT_RISE"
    assert ("; meanwhile the learning rate rose from 0.001 to " in finding.sentence) == told


@pytest.mark.parametrize(
    ("at", "told"),
    [
        ([200], "before step 200:"),
        ([20, 200], "before steps 20, 200:"),
        (range(10, 80, 10), "20, 30, 40, 50 and later ones:"),
    ],
)
def test_changes_that_were_announced_are_told_of(at: Sequence[int], told: str) -> None:
    planned = np.full(300, np.nan)
    planned[list(at)] = 1.0
    run = run_of(losses()[:300], planned_changes=planned)
    whole, pieces = diagnose(run), in_pieces(run, 7)
    (note,) = whole.notes
    assert told in note and pieces.notes == whole.notes


def test_of_tensors_that_became_fewer_again_and_again_the_first_times_are_told() -> None:
    trained = 9.0 - np.arange(300) // 40
    (note,) = diagnose(run_of(losses(300), trained_parameters=trained)).notes
    assert note.startswith("fewer tensors were trained by step 40 (8, not 9), step 80 (7, not 8)")
    assert note.endswith("step 200 (4, not 5) and later ones")


@pytest.mark.parametrize(("every", "too_often"), [(1, True), (17, True), (18, False)])
def test_changes_that_are_announced_too_often_are_said_to_keep_all_from_being_judged(
    every: int, too_often: bool
) -> None:
    planned = np.where(np.arange(300) % every == 0, 1.0, np.nan)
    run = run_of(losses()[:300], planned_changes=planned)
    whole, pieces = diagnose(run), in_pieces(run, 7)
    assert ("nothing but single numbers was judged" in whole.notes[0]) == too_often
    assert pieces.notes == whole.notes
    assert "since the last change that was announced" in whole.not_judged["WORSE_LEVEL"]
    assert "announced" not in whole.not_judged["GRADIENT_GROWS"]


def test_a_log_full_of_settings_that_changed_takes_no_memory() -> None:
    examination = Examination()
    line = {"event": "SETTING_CHANGED", "setting": "eps", "before": 0.1, "now": 1.0}
    examination.note(line | {"step": step} for step in range(10_000))
    assert len(str(vars(examination)["_changes"])) < 10_000


def test_a_validation_loss_that_stays_nan_has_not_passed() -> None:
    validation = np.where(np.arange(200) < 60, 2.5 - 0.001 * np.arange(200), np.inf)
    (finding,) = diagnose(run_of(losses(200), validation_loss=validation)).findings
    assert (finding.name, finding.severity, finding.step, finding.until) == ("NOT_FINITE", "error", 60, 199)
    assert finding.sentence.endswith("and it is so at the end")


def test_a_validation_loss_that_stays_nan_hides_no_slow_steps() -> None:
    validation, evaluated, times = np.full(400, 2.5), np.arange(400) % 20 == 19, 0.5 * norms() ** 0.5
    validation[119:], times[250:] = np.inf, 2.0
    columns = {"training_loss": losses(), "validation_loss": validation, "step_time_s": times}
    found = diagnose(Observations(np.arange(400), columns, evaluated)).findings
    assert [(finding.name, finding.until) for finding in found] == [("NOT_FINITE", 399), ("SLOW_STEPS", 399)]
    assert found[0].sentence.endswith("alerts in 15 records, and it is so at the end")


@pytest.mark.parametrize(
    ("evaluations", "severities"),
    [
        ({150: 2.5, 199: math.inf}, ["error"]),
        ({150: 2.5, 198: math.inf, 199: 2.4}, []),
        ({150: 2.5, 199: 2.4}, []),
        ({150: math.inf}, []),  # the next record would have it
    ],
)
def test_an_evaluation_after_the_last_record_counts(evaluations: dict[int, float], severities: list[str]) -> None:
    lines = [
        {"event": "VALIDATION", "step": step} | ({"validation_loss": loss} if math.isfinite(loss) else {})
        for step, loss in evaluations.items()
    ]
    examination = Examination()
    examination.extend(run_of(losses(200)))
    examination.note(lines)
    for _ in range(2):  # to ask changes nothing
        found = examination.diagnosis("run").findings
        assert [finding.severity for finding in found] == severities
        assert all((finding.name, finding.step, finding.until) == ("NOT_FINITE", 199, 199) for finding in found)


def test_a_loss_that_explodes_is_an_error_to_the_end() -> None:
    loss = losses()
    loss[300:] *= 1.5 ** np.arange(1, 101)
    found = diagnose(run_of(loss))
    assert found.severity == "error"
    assert found.findings[0].until == 399


@pytest.mark.parametrize("held_out", [False, True])
def test_a_loss_that_explodes_is_an_error_whatever_rose_first(held_out: bool) -> None:
    loss, norm = losses(), norms()
    norm[50] = 100.0  # it passes, and is none of the explosion
    loss[300:] *= 5e6
    norm[300:] *= 1e4
    columns = {"training_loss": loss, "grad_norm": norm}
    if held_out:  # as good as ever, so that no state tells of the level
        columns["validation_loss"] = np.where(np.arange(400) % 20 == 0, losses(seed=2), np.nan)
    found = diagnose(Observations(np.arange(400), columns)).findings
    (finding,) = [finding for finding in found if finding.severity == "error"]
    assert finding.until == 399 and finding.sentence.count("the loss has exploded") == 1
    assert "gradient norm" in finding.sentence


@pytest.mark.parametrize(
    ("last", "told", "times"), [(200.0, ("WORSE_LEVEL", "warning"), "84"), (60.0, ("GRADIENT_RISE", "note"), "25.5")]
)
def test_a_loss_that_stays_manifold_is_told_though_the_model_is_as_good(
    last: float, told: tuple[str, str], times: str
) -> None:
    loss, norm = losses(600), norms(600)
    factor = np.geomspace(200.0, last, 300)  # summed up, and no mean any more
    loss[300:], norm[300:] = factor * loss[300:], factor * norm[300:]
    held_out = np.where(np.arange(600) % 20 == 0, 3.0 - np.arange(600) / 600.0, np.nan)
    (finding,) = diagnose(run_of(loss, norm, validation_loss=held_out)).findings
    assert (finding.name, finding.severity) == told
    assert f"the loss stays high: it ends {times} times as high" in finding.sentence


def test_a_loss_that_has_risen_before_the_first_alert_is_compared_with_the_lowest() -> None:
    (finding,) = diagnose(run_of([0.99, 8e5, 1e8, 2e6, 4e5, 9e4, 2e4, 3e4, 3e4])).findings
    assert finding.sentence.startswith("loss 2e+04 at step 6, up to 3e+04; 0.99 before (lowest of 6 records)")


@pytest.mark.parametrize("records", [20, 100])
def test_a_run_that_explodes_in_its_first_records_is_an_error_at_once(records: int) -> None:
    high = 1e5 * np.exp(np.random.default_rng(3).normal(0.0, 0.3, records - 7))
    found = diagnose(run_of(np.append([1.42, 1.32, 1.25, 1.08, 0.89, 0.66, 0.5], high))).findings
    assert ("LOSS_RISE", "error", 9) in [(finding.name, finding.severity, finding.step) for finding in found]


def test_a_loss_ten_times_higher_is_a_matter_for_somebody_to_look_at() -> None:
    loss = losses()
    loss[300:] *= 10.0
    assert diagnose(run_of(loss)).severity == "warning"


@pytest.mark.parametrize(("back", "severity"), [(400, "warning"), (330, "note")])
def test_a_loss_below_zero_that_stays_high_has_not_passed(back: int, severity: str) -> None:
    loss = losses() - 6.0
    loss[300:back] += 5.0
    (finding,) = diagnose(run_of(loss)).findings
    assert (finding.name, finding.severity) == ("LOSS_RISE", severity)


def test_a_row_of_another_kind_says_nothing_by_a_gap_in_a_frame_of_pandas() -> None:
    rows: list[dict[str, float]] = []
    for step, loss in enumerate(losses()):
        rows.append({"step": step, "loss": loss, "lr": 0.1})
        if step % 50 == 49:
            rows.append({"step": step, "eval_loss": loss + 0.1})
    found = diagnose(pd.DataFrame(rows))
    assert found.healthy and found.records == 400 and not found.notes
    assert "OVERFITS" not in " ".join(found.not_judged)
    rows[300]["loss"] = math.nan
    assert [finding.name for finding in diagnose(pd.DataFrame(rows)).findings] == ["NOT_FINITE"]


def test_two_columns_of_one_name_are_an_error() -> None:
    with pytest.raises(UserError, match="have the same name; rename one"):
        diagnose(pd.DataFrame([[1, 2.0, 3.0]], columns=["step", "loss", "loss"]))


def epochs() -> pd.DataFrame:
    """Two runs one after the other, a row an epoch, as a script of Keras leaves them."""
    loss, steps = losses(), range(len(losses()))
    one = pd.DataFrame({"epoch": steps, "loss": loss, "val_loss": [value + 0.1 for value in loss], "acc": 0.5})
    return pd.concat([one.assign(model="small"), one.assign(model="large")], ignore_index=True)


@pytest.mark.parametrize("kind", ["epochs", "an empty loss"])
def test_a_frame_says_what_its_csv_says(tmp_path: Path, kind: str) -> None:
    frame = epochs()
    if kind == "an empty loss":
        frame.loc[350:399, "loss"] = np.nan
    frame.to_csv(tmp_path / "log.csv", index=False)
    of_frame, of_log = [*diagnose_runs(frame)], [*diagnose_runs(tmp_path / "log.csv")]
    assert len(of_frame) == 2
    for one, other in zip(of_frame, of_log, strict=True):
        assert (one.records, one.last_step, one.findings) == (other.records, other.last_step, other.findings)
    with pytest.raises(UserError, match=r"^frame holds 2 runs \('small', 'large'\)"):
        diagnose(frame)


def test_a_frame_of_arrays_and_tensors_of_one_number() -> None:
    torch = pytest.importorskip("torch")
    rows = [
        {"step": np.int64(step), "loss": torch.tensor(loss), "grad_norm": np.float32(1.0)}
        for step, loss in enumerate(losses())
    ]
    found = diagnose(pd.DataFrame(rows, dtype=object))
    assert found.healthy and found.records == len(rows) and found.last_step == len(rows) - 1


def test_a_frame_without_a_record_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"^frame has no record that could be used; check the file$"):
        diagnose(pd.DataFrame({"step": [], "loss": []}))
