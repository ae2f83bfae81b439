"""What each component of the robust R-Metric sees, and what it overlooks on purpose."""

import math

import numpy as np
import pytest

from rmetric.records import Observations
from rmetric.robust.gradients import EXPLAINED_PER_NAT
from rmetric.robust.hardware import ALLOWANCE, OF_ONE_WORKER, SLOW_MOST, WorkerIncidents
from rmetric.robust.metric import STATISTICS, Statistics
from rmetric.state import state_of
from tests.robust.runs import ONSET, columns, disturbed, healthy

LATER = slice(ONSET, None)


def statistic(name: str, observations: Observations) -> np.ndarray:
    return Statistics.of(observations)[:, STATISTICS.index(name)]


def highest(name: str, observations: Observations, rows: slice = slice(None)) -> float:
    return float(np.nanmax(statistic(name, observations)[rows]))


# -- λ ----------------------------------------------------------------------------------------------------------------


def with_events(*steps: int) -> Observations:
    count = np.zeros(500)
    count[list(steps)] = 1.0
    return disturbed({"hardware_events": (slice(None), count)})


def test_a_second_event_adds_up_if_it_comes_soon() -> None:
    alone, together = (highest("hardware_events.drift", with_events(*at)) for at in ((300,), (300, 310)))
    apart = highest("hardware_events.drift", with_events(300, 420))
    # The first in 300 steps: ln(rate of an ailing machine / 1 in 450) over ln(7.5), less one allowance.
    assert alone == pytest.approx(np.log(450 / 20) / np.log(7.5) - ALLOWANCE, abs=0.01)
    assert apart == pytest.approx(alone)
    assert together > 1.6 * alone


def test_what_happens_often_counts_little() -> None:
    often = with_events(*range(20, 480, 30))
    first, last = (np.diff(statistic("hardware_events.drift", often))[at] for at in (19, 469))
    assert last < 0.5 * first


def of_workers(*workers: int) -> Observations:
    """Events ten steps apart, of these workers."""
    count, reporting = np.zeros(500), np.full(500, np.nan)
    steps = [300 + 10 * place for place in range(len(workers))]
    count[steps], reporting[steps] = 1.0, workers
    return disturbed({"hardware_events": (slice(None), count), "event_worker": (slice(None), reporting)})


def test_events_of_one_worker_add_up_and_those_of_several_do_not() -> None:
    name = "hardware_events.drift"
    first, same, others = (highest(name, of_workers(*workers)) for workers in ((2,), (2, 2), (2, 3)))
    assert first == pytest.approx(highest(name, with_events(300)) + OF_ONE_WORKER)
    assert others == pytest.approx(first, abs=0.05)
    assert same > 1.7 * first


def test_an_event_of_an_unknown_worker_may_be_that_of_any() -> None:
    known = of_workers(2, 3)
    reporting = known["event_worker"].copy()
    reporting[310] = np.nan
    unknown = Observations(
        known.step, {**columns(), "hardware_events": known["hardware_events"], "event_worker": reporting}
    )
    name = "hardware_events.drift"
    assert highest(name, known) < highest(name, unknown) < highest(name, of_workers(2, 2))


def test_workers_without_evidence_of_their_own_are_forgotten() -> None:
    incidents = WorkerIncidents()
    for worker in range(1000):
        incidents.update(50, of_worker=1.0, worker=float(worker))
    assert len(str(state_of(incidents))) < 100  # a checkpoint does not grow with them
    assert incidents.update(1, of_anybody=2.0, of_worker=1.0, worker=7.0) == pytest.approx(3.0 - ALLOWANCE)


def test_the_evidence_of_events_fades() -> None:
    assert statistic("hardware_events.drift", with_events(300, 310))[450] == 0.0


def test_slow_steps_count_as_events_and_a_burst_of_them_as_one() -> None:
    name = "hardware_events.drift"
    one, two, burst = (
        highest(name, disturbed({"step_time_s": (slow, 0.06)}))  # type: ignore[dict-item]
        for slow in ([300], [300, 312], [300, 304, 308, 312])
    )
    assert one == burst > 0.0
    assert two > 1.5 * one


def test_the_longer_a_slow_step_the_more_it_counts_and_a_stall_counts_in_a_burst_too() -> None:
    name = "hardware_events.drift"
    slow, slower, stall, stalls = (
        highest(name, disturbed({"step_time_s": (steps, seconds)}))  # type: ignore[dict-item]
        for steps, seconds in (([300], 0.035), ([300], 0.06), ([300], 0.2), ([300, 304], 0.2))
    )
    event = highest(name, with_events(300))
    assert slow < event < slower < stall == pytest.approx(event + SLOW_MOST)
    assert stalls > 1.8 * stall


def test_a_change_of_pace_counts_once() -> None:
    slower = disturbed({"step_time_s": (LATER, columns()["step_time_s"][LATER] * 4.0)})
    event = highest("hardware_events.drift", with_events(ONSET))
    assert event < highest("hardware_events.drift", slower) <= event + SLOW_MOST
    assert highest("step_time_s.pace", slower) == pytest.approx(np.log(4.0), abs=0.2)


def test_without_a_count_a_change_of_lambda_is_an_event() -> None:
    made = columns()
    del made["hardware_events"]
    made["lambda"] = np.where(np.arange(500) < 300, 0.0, np.where(np.arange(500) < 310, 2.0, 3.0))
    assert highest("hardware_events.drift", Observations(np.arange(1, 501), made)) > 1.7


def test_where_events_are_counted_lambda_says_nothing_more() -> None:
    rate = np.linspace(1.0, 2.0, 500)
    made = {**columns(), "lambda": rate}
    assert highest("hardware_events.drift", Observations(np.arange(1, 501), made)) == 0.0


def test_the_allowance_of_events_is_a_step_and_not_a_record() -> None:
    count = np.zeros(500)
    count[[300, 302]] = 1.0
    made = {**columns(), "hardware_events": count}
    a_step, ten_steps = (Observations(np.arange(1, 501) * every, made) for every in (1, 10))
    name = "hardware_events.drift"
    assert statistic(name, a_step)[325] > 1.0
    assert statistic(name, ten_steps)[325] == 0.0


# -- σ² ---------------------------------------------------------------------------------------------------------------


def test_a_gradient_is_judged_by_its_factor() -> None:
    larger = disturbed({"grad_norm": (slice(ONSET, ONSET + 1), 1e3 * columns()["grad_norm"][ONSET])})
    assert statistic("grad_norm.factor", larger)[ONSET] == pytest.approx(np.log(1e3), abs=0.7)
    assert highest("grad_norm.factor", healthy()) < 1.0


def both(loss_nats: float, gradient_log: float) -> Observations:
    """One record in which the loss is so much higher, and the log gradient norm."""
    made, here = columns(), slice(ONSET, ONSET + 1)
    return disturbed(
        {
            "training_loss": (here, made["training_loss"][ONSET] + loss_nats),
            "grad_norm": (here, made["grad_norm"][ONSET] * np.exp(gradient_log)),
        }
    )


def test_one_record_of_a_broken_model_is_told_from_a_bad_batch() -> None:
    name = "grad_norm.unexplained"
    usual = highest(name, healthy())
    assert highest(name, both(3.0, 1.3), LATER) < usual + 0.3  # a bad batch: no more gradient than its loss explains
    assert highest(name, both(0.0, 3.0), LATER) < usual + 0.3  # a gradient that stands out, and no loss with it
    assert statistic(name, both(1.5, 3.0))[ONSET] == pytest.approx(1.5, abs=0.3)
    assert statistic(name, both(1.5, 2.0))[ONSET] == pytest.approx(2.0 - EXPLAINED_PER_NAT * 1.5, abs=0.5)


@pytest.mark.parametrize("name", ["training_loss", "grad_norm"])
def test_what_a_loss_explains_is_not_known_where_one_of_both_is_missing(name: str) -> None:
    assert math.isnan(statistic("grad_norm.unexplained", disturbed({name: (LATER, math.nan)}))[ONSET])


def test_a_jump_of_the_update_is_seen_in_its_record() -> None:
    z = statistic("update_rms.jump", disturbed({"update_rms": (LATER, columns()["update_rms"][LATER] * 15.0)}))
    assert z[ONSET] > 10.0 > 5.0 > np.nanmax(z[:ONSET])


def test_a_learning_rate_announces_the_update_before_it_is_made() -> None:
    jumped = disturbed(
        {
            "learning_rate": (LATER, 0.015),
            "update_rms": (slice(ONSET + 1, None), columns()["update_rms"][ONSET + 1 :] * 15.0),
        }
    )
    z = statistic("update_rms.jump", jumped)
    assert z[ONSET] == pytest.approx(math.log(15.0) / 0.1, rel=0.1)
    # Measured in the next record, and not counted twice.
    assert z[ONSET + 1] == pytest.approx(math.log(15.0) / 0.1, rel=0.1)


def test_a_learning_rate_that_falls_is_no_evidence() -> None:
    lowered = disturbed({"learning_rate": (LATER, 1e-5), "update_rms": (LATER, 3e-6)})
    assert highest("update_rms.jump", lowered, LATER) < 1.0


@pytest.mark.parametrize(
    ("name", "value"), [("grad_norm.factor", 0.0), ("update_rms.jump", 0.0), ("non_finite_count.jump", 1.0)]
)
def test_what_no_healthy_step_has_is_certain(name: str, value: float) -> None:
    changes = {name.partition(".")[0]: (LATER, value)}
    assert statistic(name, disturbed(changes))[ONSET] == math.inf


@pytest.mark.parametrize("name", ["grad_norm.factor", "update_rms.jump"])
def test_a_zero_at_the_very_beginning_is_a_warm_up(name: str) -> None:
    changes = {name.partition(".")[0]: (slice(0, 5), 0.0)}
    assert not np.isposinf(statistic(name, disturbed(changes))).any()


def test_a_gradient_norm_that_creeps_up_adds_up() -> None:
    creeping = disturbed({"grad_norm": (LATER, columns()["grad_norm"][LATER] * np.exp(0.4))})
    assert highest("grad_norm.drift", creeping, LATER) > 2.0 * highest("grad_norm.drift", healthy())


# -- ΔL ---------------------------------------------------------------------------------------------------------------


def test_a_bad_batch_is_forgiven_and_a_broken_model_is_not() -> None:
    batch = disturbed({"training_loss": (slice(ONSET, ONSET + 1), 6.0)})
    model = disturbed({"training_loss": (LATER, 6.0)})
    assert highest("training_loss.drift", batch, LATER) < 3.0
    assert statistic("training_loss.drift", model)[ONSET + 4] == pytest.approx(10.0, abs=0.1)
    assert highest("training_loss.lasting", batch, LATER) < 5.0
    assert statistic("training_loss.lasting", model)[ONSET + 1] > 20.0


def test_what_a_planned_learning_rate_does_to_loss_and_gradients_does_not_add_up() -> None:
    after = {
        "training_loss": (LATER, columns()["training_loss"][LATER] + 0.3),
        "grad_norm": (LATER, columns()["grad_norm"][LATER] * 2.0),
    }
    restart = disturbed({**after, "learning_rate": (slice(ONSET, ONSET + 10), 2e-3)})
    for name in ("training_loss.drift", "grad_norm.drift"):
        drift = statistic(name, restart)
        assert drift[ONSET + 9] == drift[ONSET - 1]
        assert drift[ONSET + 9] < 0.5 * statistic(name, disturbed(after))[ONSET + 9]
        assert drift[ONSET + 20] > drift[ONSET + 9] + 3.0  # what stays when the rate is back does


def test_a_small_shift_of_the_loss_adds_up() -> None:
    shifted = disturbed({"training_loss": (LATER, columns()["training_loss"][LATER] + 0.2)})
    drift = statistic("training_loss.drift", shifted)
    assert drift[ONSET + 15] > 2.0 * np.nanmax(drift[:ONSET])


def test_the_validation_loss_is_judged_when_it_is_new_and_held_until_the_next() -> None:
    made = columns()
    made["validation_loss"][319::20] += 1.0
    z = statistic("validation_loss.jump", Observations(np.arange(1, 501), made))
    assert z[319] > 10.0
    held = made["validation_loss"].copy()
    held[320:339] = held[319]
    assert (
        statistic("validation_loss.jump", Observations(np.arange(1, 501), {**made, "validation_loss": held}))[330]
        > 10.0
    )


def test_a_loss_of_exactly_ln_vocabulary_is_certain_for_a_model_that_had_learned() -> None:
    dead = disturbed({"uniform_gap": (LATER, 1e-6)})
    assert statistic("uniform_gap.jump", dead)[ONSET] == math.inf
    untrained = disturbed({"uniform_gap": (slice(None), 0.0)})
    assert highest("uniform_gap.jump", untrained) == 0.0


def test_the_first_judgements_come_with_the_end_of_the_warm_up() -> None:
    statistics = Statistics.of(healthy())
    first = {name: int(np.flatnonzero(~np.isnan(statistics[:, j]))[0]) for j, name in enumerate(STATISTICS)}
    assert first["training_loss.drift"] == 0  # nothing has added up
    assert first["training_loss.lasting"] == 73
    assert first["grad_norm.factor"] == 72
    assert first["validation_loss.jump"] == 8 * 20 + 19
