"""The rule that tells a run that fails for good, and the policy that stops such a run."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmetric.measurements import Observation
from rmetric.monitor.repair import FatalRule, RepairRecord, StopDoomed, TrainingStopped
from tests.monitor.repair.common import Toy

ONSET = 120


def verdicts(
    losses: list[float], validation: dict[int, float] | None = None, rates: list[float] | None = None
) -> list[int]:
    """Steps at which a rule says that the run fails for good."""
    rule, latest, found = FatalRule(), None, []
    for step, loss in enumerate(losses, 1):
        latest, evaluated = (validation or {}).get(step, latest), step in (validation or {})
        rate = rates[step - 1] if rates else None
        row = Observation(step, training_loss=loss, validation_loss=latest, learning_rate=rate, evaluated=evaluated)
        if rule.update(row):
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


def test_the_validation_loss_has_the_last_word_on_a_level() -> None:
    level = [loss + 2.0 * (step >= 203) for step, loss in enumerate(noisy(400), 1)]
    sound = dict.fromkeys(range(20, 401, 20), 2.0)
    assert verdicts(level, sound) == []
    assert verdicts(level, {step: loss + (step > 203) for step, loss in sound.items()})[0] == 220
    assert verdicts(level, {**sound, 204: 9.0}) == []  # the shock, which has passed by the next one


def test_a_loss_may_climb_where_a_schedule_starts_anew_and_not_where_the_rate_is_new() -> None:
    level = [loss + 2.0 * (step >= 203) for step, loss in enumerate(noisy(400), 1)]
    rates = [1.0 if step < 60 or step >= 203 else 0.1 for step in range(1, 401)]
    assert verdicts(level, rates=rates) == []
    assert verdicts(level, rates=[3.0 if step >= 203 else rate for step, rate in enumerate(rates, 1)])


def test_a_loss_that_is_no_number_is_fatal_whichever_loss_it_is() -> None:
    healthy = noisy(300)
    broken = [math.nan if step >= 200 else loss for step, loss in enumerate(healthy, 1)]
    assert verdicts(broken)[0] == 202
    assert verdicts(healthy, {100: 2.0, 200: math.nan, 280: math.nan}) == [280]


def test_one_evaluation_that_is_no_number_is_not_fatal_however_long_it_is_the_last_one() -> None:
    healthy = noisy(300)
    assert verdicts(healthy, {100: 2.0, 200: math.nan}) == []
    assert verdicts(healthy, {100: 2.0, 200: math.nan, 220: 2.0, 240: math.nan, 260: 2.0}) == []


def test_a_state_from_before_evaluations_were_counted_is_read() -> None:
    policy = StopDoomed()
    older = policy.state_dict()
    older["rule"] = {name: it for name, it in older["rule"].items() if "broken_evaluations" not in name}
    policy.load_state_dict({**older, "rule": {**older["rule"], "_broken_row": 7}})
    assert (policy.rule._broken_row, policy.rule.broken_evaluations) == (7, 5)


def train(policy: StopDoomed, steps: int) -> None:
    toy = Toy()
    with toy.watch(policy=policy) as monitor:
        toy.train(ONSET, monitor)
        toy.optimizer.param_groups[0]["lr"] = 1e6
        toy.train(steps - ONSET, monitor)


def quick() -> FatalRule:
    return FatalRule(stays=16, of=20, broken=10)


@pytest.mark.slow
def test_a_doomed_run_is_stopped() -> None:
    with pytest.raises(TrainingStopped, match=r"step 1[34]") as stopped:
        train(StopDoomed(rule=quick()), 200)
    assert stopped.value.code == 3


@pytest.mark.slow
def test_the_decision_can_be_somebody_elses() -> None:
    asked: list[RepairRecord] = []

    def decide(record: RepairRecord) -> bool:
        asked.append(record)
        return False

    train(StopDoomed(rule=quick(), decide=decide), 150)
    assert [record.verdict for record in asked] == ["doomed"]
