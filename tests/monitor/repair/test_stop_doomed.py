"""The rule that tells a run that fails for good, and the policy that stops such a run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.measurements import Observation
from rmetric.monitor.repair import FatalRule, RepairRecord, StopDoomed, TrainingStopped
from tests.monitor.repair.common import Toy

ONSET = 120


def verdicts(losses: list[float], validation: dict[int, float] | None = None) -> list[int]:
    """Steps at which a rule says that the run fails for good."""
    rule, latest, found = FatalRule(), None, []
    for step, loss in enumerate(losses, 1):
        latest = (validation or {}).get(step, latest)
        if rule.update(Observation(step, training_loss=loss, validation_loss=latest)):
            found.append(step)
    return found


def noisy(steps: int, level: float = 2.0) -> list[float]:
    return (level + 0.05 * np.random.default_rng(0).standard_normal(steps)).tolist()


def test_a_level_that_stays_is_fatal_and_a_spike_is_not() -> None:
    healthy = noisy(400)
    spike = [loss + 2.0 * (200 <= step < 205) for step, loss in enumerate(healthy, 1)]
    level = [loss + 2.0 * (step >= 200) for step, loss in enumerate(healthy, 1)]
    assert verdicts(healthy) == []
    assert verdicts(spike) == []
    assert 206 <= verdicts(level)[0] <= 212


def test_a_loss_that_is_no_number_is_fatal_whichever_loss_it_is() -> None:
    healthy = noisy(300)
    broken = [math.nan if step >= 200 else loss for step, loss in enumerate(healthy, 1)]
    assert verdicts(broken)[0] == 202
    assert verdicts(healthy, {100: 2.0, 200: math.nan})[0] == 202
    assert verdicts(healthy, {100: 2.0, 200: math.nan, 201: 2.0}) == []


def train(policy: StopDoomed, steps: int) -> None:
    toy = Toy()
    with toy.watch(policy=policy) as monitor:
        toy.train(ONSET, monitor)
        toy.optimizer.param_groups[0]["lr"] = 1e6
        toy.train(steps - ONSET, monitor)


def quick() -> FatalRule:
    return FatalRule(stays=16, of=20, broken=10)


def test_a_doomed_run_is_stopped() -> None:
    with pytest.raises(TrainingStopped, match=r"step 1[34]") as stopped:
        train(StopDoomed(rule=quick()), 200)
    assert stopped.value.code == 3


def test_the_decision_can_be_somebody_elses() -> None:
    asked: list[RepairRecord] = []

    def decide(record: RepairRecord) -> bool:
        asked.append(record)
        return False

    train(StopDoomed(rule=quick(), decide=decide), 150)
    assert [record.verdict for record in asked] == ["doomed"]
