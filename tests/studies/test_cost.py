"""The bill, added up by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rmetric.evaluation.protocols import Timeline
from studies.cluster.cost import CostModel, bill, no_monitor, run_costs
from tests.evaluation.builders import build_run

STEPS = np.arange(10, 1001, 10)
PRICED = {"total_training_steps": 1000, "step_time_s": 36.0, "num_workers": 4, "usd_per_accelerator_hour": 2.5}
RUNS = [build_run(STEPS, onset=350, failure=450, **PRICED), build_run(STEPS, **PRICED)]
MODEL = CostModel(checkpoint_every=100, false_alarm_minutes=30.0)
TIMELINE = Timeline.of(RUNS)
COSTS = run_costs(MODEL, RUNS, TIMELINE)
"""36 s a step are 100 steps an hour; 10 USD an hour."""


def counted(*alert_steps, protocol="strict"):
    return TIMELINE.count(protocol, np.isin(TIMELINE.step, alert_steps) * 1.0, 0.5)


def test_without_a_monitor_work_since_the_last_checkpoint_before_the_onset_is_lost():
    found = bill(MODEL, COSTS, no_monitor(counted(400)))
    assert found.lost_hours == pytest.approx((450 - 300) / 100)
    assert found.false_alarm_hours == 0
    assert found.lost_usd == pytest.approx(15.0)
    assert found.tor.value == pytest.approx(20.0 / 21.5)


def test_a_warning_saves_its_lead_and_a_false_alarm_stops_the_cluster():
    found = bill(MODEL, COSTS, counted(400))  # step 400 alerts in the control as well
    assert found.lost_hours == pytest.approx((450 - 300 - 50) / 100)
    assert found.false_alarm_hours == pytest.approx(0.5)
    assert found.total_usd == pytest.approx(10.0 + 5.0)
    assert found.tor.value == pytest.approx(20.0 / 21.5)


def test_the_oracle_warns_at_the_onset_and_is_never_wrong():
    found = bill(MODEL, COSTS, counted(400), oracle=True)
    assert found.lost_hours == pytest.approx(0.5)
    assert found.false_alarm_hours == 0


def test_an_alert_before_the_onset_saves_at_most_the_whole_loss():
    found = bill(MODEL, COSTS, counted(10, protocol="paper"))
    assert found.lost_hours == 0.0


def test_logs_that_say_nothing_cost_what_the_model_says():
    bare = [build_run(STEPS)]
    costs = run_costs(CostModel(), bare, Timeline.of(bare))
    assert (costs.step_time_s[0], costs.usd_per_hour[0], costs.useful_steps[0]) == (5.0, 20.0, 1000.0)
