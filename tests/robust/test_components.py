"""What each component of the robust R-Metric sees, and what it overlooks on purpose."""

import math
from collections.abc import Callable
from itertools import chain

import numpy as np
import pytest

from rmetric.records import Observations
from rmetric.robust.gradients import EXPLAINED_NATS, EXPLAINED_PER_NAT, ZEROS
from rmetric.robust.hardware import ALLOWANCE, JITTER_S, OF_ONE_WORKER, WorkerIncidents
from rmetric.robust.metric import STATISTICS, Statistics
from rmetric.robust.reference import LEVEL_CAP
from rmetric.state import state_of
from tests.robust.runs import ONSET, columns, disturbed, healthy

LATER = slice(ONSET, None)


def statistic(name: str, observations: Observations) -> np.ndarray:
    return Statistics.of(observations)[:, STATISTICS.index(name)]


def streams_alike(run: Observations) -> None:
    """Checks that one record at a time gives what all at once do."""
    streamed = Statistics()
    np.testing.assert_array_equal([[*chain(*streamed.update(each))] for each in run], Statistics.of(run))


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


def test_a_stall_is_no_slowdown_and_a_slow_machine_is_one() -> None:
    name = "step_time_s.slowdown"
    stall = disturbed({"step_time_s": (slice(ONSET, ONSET + 4), 1.0)})
    slower = disturbed({"step_time_s": (LATER, columns()["step_time_s"][LATER] * 4.0)})
    assert highest(name, stall) < 0.2
    assert highest(name, slower) == pytest.approx(np.log((0.08 + JITTER_S) / (0.02 + JITTER_S)), abs=0.1)


def test_steps_of_milliseconds_may_jitter() -> None:
    jitter = 1e-3 * np.random.default_rng(0).choice([1.0, 5.0], 500)
    assert highest("step_time_s.slowdown", disturbed({"step_time_s": (slice(None), jitter)})) < 0.2


def test_a_log_without_hardware_has_no_evidence_of_it() -> None:
    made = columns()
    del made["hardware_events"]
    assert np.isnan(statistic("hardware_events.drift", Observations(np.arange(1, 501), made))).all()


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


def raised(name: str, records: int, factor: float) -> Observations:
    """So many records of a measurement times a factor."""
    rows = slice(ONSET, ONSET + records)
    return disturbed({name: (rows, columns()[name][rows] * factor)})


def test_two_high_gradient_norms_are_no_evidence_and_eight_that_are_a_little_high_are() -> None:
    eight = highest("grad_norm.level", raised("grad_norm", 8, 2.0), LATER)
    assert eight > 2.0 > 1.0 > highest("grad_norm.level", raised("grad_norm", 2, 1e6), LATER)


def test_gradient_norms_that_stay_a_thousand_times_as_large_are_more_evidence_than_twice_as_large() -> None:
    twice, thousand = (highest("grad_norm.level", raised("grad_norm", 8, factor), LATER) for factor in (2.0, 1000.0))
    assert thousand > 2.0 * LEVEL_CAP > twice
    streams_alike(raised("grad_norm", 8, 1000.0))


@pytest.mark.parametrize(
    ("name", "high"),
    [
        ("grad_norm.level", lambda norms: 2.0 * norms),
        ("grad_agreement.held", lambda cosines: np.full(len(cosines), 0.9)),
        ("update_rms.held", lambda updates: 2.0 * updates),
    ],
)
@pytest.mark.parametrize(("falls", "is_evidence"), [(0.0, True), (0.1, False)])
def test_what_is_large_is_no_evidence_while_the_loss_makes_new_lows(
    name: str, high: Callable[[np.ndarray], np.ndarray], falls: float, is_evidence: bool
) -> None:
    made, here = columns(), slice(ONSET, ONSET + 12)
    measured = name.partition(".")[0]
    lower = made["training_loss"][here] - falls * np.arange(12)
    run = disturbed({measured: (here, high(made[measured][here])), "training_loss": (here, lower)})
    assert (highest(name, run, slice(ONSET + 8, ONSET + 12)) > 1.0) == is_evidence


def test_norms_that_are_0_are_evidence_however_the_loss_falls() -> None:
    made, here = columns(), slice(ONSET, ONSET + 12)
    lower = made["training_loss"][here] - 0.6
    run = disturbed({"grad_norm": (here, 0.0), "training_loss": (here, lower)})
    assert math.isinf(highest("grad_norm.level", run, here))
    streams_alike(run)


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
    # However high the loss: beyond three nats it explains no more.
    assert statistic(name, both(9.0, 3.5))[ONSET] == pytest.approx(3.5 - EXPLAINED_PER_NAT * EXPLAINED_NATS, abs=0.5)


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


def test_a_rate_that_the_run_has_had_announces_nothing() -> None:
    rate, update = (columns()[name] for name in ("learning_rate", "update_rms"))
    low, back = slice(200, ONSET), slice(ONSET, None)
    restart = {"learning_rate": rate.copy(), "update_rms": update.copy()}
    for values in restart.values():
        values[low] *= 0.01
    found = statistic("update_rms.jump", disturbed({name: (slice(None), to) for name, to in restart.items()}))
    assert np.nanmax(found[back]) < 5.0


def test_a_learning_rate_that_falls_is_no_evidence() -> None:
    lowered = disturbed({"learning_rate": (LATER, 1e-5), "update_rms": (LATER, 3e-6)})
    assert highest("update_rms.jump", lowered, LATER) < 1.0


def test_gradients_that_repeat_four_times_are_seen() -> None:
    three, four = (
        highest("grad_agreement.held", disturbed({"grad_agreement": (slice(ONSET, ONSET + n), 0.9)}), LATER)
        for n in (3, 4)
    )
    assert three < 1.5 < 2.0 < four


def test_gradients_that_turn_round_and_batches_of_two_kinds_repeat_nothing() -> None:
    turned = disturbed({"grad_agreement": (LATER, -1.0)})
    assert highest("grad_agreement.held", turned, slice(ONSET + 4, None)) <= 0.0
    now_and_then = np.where(np.arange(500) % 8 < 3, 0.8, columns()["grad_agreement"])
    assert highest("grad_agreement.held", disturbed({"grad_agreement": (slice(None), now_and_then)})) < 1.5


def test_gradients_that_point_back_a_little_less_do_not_repeat() -> None:
    agreement = np.where(np.arange(500) < ONSET, columns()["grad_agreement"] - 0.8, -0.05)
    assert highest("grad_agreement.held", disturbed({"grad_agreement": (slice(None), agreement)}), LATER) <= 0.0


def test_updates_that_stay_above_what_their_rate_explains_are_evidence() -> None:
    seven, eight = (highest("update_rms.held", raised("update_rms", records, 3.0), LATER) for records in (7, 8))
    assert eight > 4.0 > 1.0 > seven


def test_updates_that_fade_are_the_echo_of_one() -> None:
    echo = 30.0 * 0.9 ** np.arange(500 - ONSET)
    updates = columns()["update_rms"][LATER] * np.maximum(echo, 1.0)
    assert highest("update_rms.held", disturbed({"update_rms": (LATER, updates)}), LATER) < 1.0
    agree = (LATER, np.where(echo > 1.0, 0.9, columns()["grad_agreement"][LATER]))
    for fading, is_evidence in ((updates, False), (columns()["update_rms"][LATER], True)):
        run = disturbed({"update_rms": (LATER, fading), "grad_agreement": agree})
        assert (highest("grad_agreement.held", run, slice(ONSET + 7, ONSET + 20)) > 1.0) == is_evidence
    updates[[9, 12]] = math.inf, math.nan
    streams_alike(disturbed({"update_rms": (LATER, updates)}))


@pytest.mark.parametrize("factor", [3.0, 1 / 3])
def test_an_update_that_follows_its_rate_stays_explained(factor: float) -> None:
    made = columns()
    rate = np.where(np.arange(500) < ONSET, 1e-3, factor * 1e-3)
    update = 0.01 * made["update_rms"] * np.concatenate([rate[:1], rate[:-1]])
    followed = Observations(np.arange(1, 501), {**made, "update_rms": update, "learning_rate": rate})
    assert highest("update_rms.held", followed) < 1.0


def test_after_a_rate_that_drops_by_a_step_of_its_schedule_gradients_may_agree_and_updates_be_larger_for_it() -> None:
    rate = np.where(np.arange(500) < ONSET, 1e-3, 1e-4)
    agree = np.where(np.arange(500) < ONSET, columns()["grad_agreement"], 0.9)
    update = np.where(np.arange(500) < ONSET, 1e-3, 3e-4) * columns()["update_rms"]
    changed = {"grad_agreement": agree, "update_rms": update}
    dropped = Observations(np.arange(1, 501), {**columns(), **changed, "learning_rate": rate})
    smooth = Observations(np.arange(1, 501), {**columns(), **changed, "learning_rate": np.geomspace(1e-3, 1e-4, 500)})
    for name in ("grad_agreement.held", "update_rms.held"):
        assert highest(name, dropped, LATER) < 1.0
    assert highest("grad_agreement.held", smooth, LATER) > 2.0
    turns = np.where(np.arange(500) % 2 == 1, 1e-3, 1e-4)
    in_turn = Observations(np.arange(1, 501), {**columns(), "grad_agreement": agree, "learning_rate": turns})
    assert highest("grad_agreement.held", in_turn, LATER) > 2.0
    for run in (dropped, in_turn):
        streams_alike(run)


def test_gradients_may_agree_where_the_rate_comes_down() -> None:
    agree = (LATER, np.where(np.arange(500 - ONSET) > 150, 0.9, columns()["grad_agreement"][LATER]))
    to_zero = 1e-3 * np.cos(np.linspace(0.0, np.pi / 2, 500 - ONSET, endpoint=False)) ** 4
    for rate, is_evidence in ((to_zero, False), (1e-3, True)):
        run = disturbed({"grad_agreement": agree, "learning_rate": (LATER, rate)})
        assert (highest("grad_agreement.held", run, slice(-60, None)) > 1.0) == is_evidence
        streams_alike(run)


def test_a_gradient_that_is_not_finite_is_certain() -> None:
    assert statistic("non_finite_count.jump", disturbed({"non_finite_count": (LATER, 1.0)}))[ONSET] == math.inf


@pytest.mark.parametrize("name", ["grad_norm.level", "update_rms.jump"])
def test_a_size_that_becomes_zero_is_certain_in_the_third_record(name: str) -> None:
    found = np.isposinf(statistic(name, disturbed({name.partition(".")[0]: (LATER, 0.0)})))
    assert np.flatnonzero(found)[0] == ONSET + ZEROS - 1


@pytest.mark.parametrize("name", ["grad_norm.level", "update_rms.jump"])
@pytest.mark.parametrize("changed", ["thawed", "planned_changes"])
def test_a_size_that_is_zero_from_a_change_on_is_certain_in_the_third_record(name: str, changed: str) -> None:
    made = {name.partition(".")[0]: (LATER, 0.0)}
    if changed == "planned_changes":
        made[changed] = (slice(ONSET, ONSET + 1), 1.0)
    else:
        made["trained_parameters"] = (slice(None), np.where(np.arange(500) < ONSET, 10.0, 20.0))
    found = np.isposinf(statistic(name, disturbed(made)))
    assert np.flatnonzero(found)[0] == ONSET + ZEROS - 1


@pytest.mark.parametrize("name", ["grad_norm.level", "update_rms.jump"])
@pytest.mark.parametrize("places", [[*range(5)], [*range(100, 400, 50), *range(420, 425)]])
def test_zeros_of_a_warm_up_and_of_a_run_that_has_some_are_not(name: str, places: list[int]) -> None:
    found = statistic(name, disturbed({name.partition(".")[0]: (places, 0.0)}))  # type: ignore[dict-item]
    assert not np.isposinf(found).any()


@pytest.mark.parametrize("name", ["grad_norm.level", "update_rms.jump"])
def test_steps_that_a_loss_scaler_left_out_do_not_hide_a_size_that_is_zero_from_then_on(name: str) -> None:
    places = [150, 220, *range(ONSET, ONSET + 50)]
    found = np.isposinf(statistic(name, disturbed({name.partition(".")[0]: (places, 0.0)})))  # type: ignore[dict-item]
    assert np.flatnonzero(found)[0] == ONSET + 2 * ZEROS - 1


@pytest.mark.parametrize("name", ["grad_norm.level", "update_rms.jump"])
def test_with_a_loss_of_zero_everything_is_learned(name: str) -> None:
    nothing_left = disturbed({name.partition(".")[0]: (LATER, 0.0), "training_loss": (LATER, 0.0)})
    assert not np.isposinf(statistic(name, nothing_left)).any()


def test_a_batch_that_is_solved_makes_no_update_and_the_next_record_says_so() -> None:
    solved = [*range(200, 300, 5)]
    after = [place + 1 for place in solved]
    spared = disturbed({"training_loss": (solved, 0.0), "grad_norm": (solved, 0.0), "update_rms": (after, 0.0)})
    assert not np.isposinf(statistic("update_rms.jump", spared)).any()
    frozen = disturbed({"training_loss": (solved, 0.0), "grad_norm": (solved, 0.0), "update_rms": (LATER, 0.0)})
    assert np.isposinf(statistic("update_rms.jump", frozen)).any()


# -- ΔL ---------------------------------------------------------------------------------------------------------------


def test_a_bad_batch_is_forgiven_and_a_broken_model_is_not() -> None:
    batch = disturbed({"training_loss": (slice(ONSET, ONSET + 1), 6.0)})
    model = disturbed({"training_loss": (LATER, 6.0)})
    for name, at in (("training_loss.lost", ONSET + 2), ("training_loss.level", ONSET + 7)):
        forgiven = highest(name, batch, LATER)
        assert forgiven < 2.0
        assert statistic(name, model)[at] > forgiven + 1.0


def test_a_small_shift_of_the_loss_adds_up() -> None:
    shifted = disturbed({"training_loss": (LATER, columns()["training_loss"][LATER] + 0.3)})
    level = statistic("training_loss.level", shifted)
    assert level[ONSET + 10] > 1.2 > np.nanmax(level[:ONSET])


@pytest.mark.parametrize(("name", "records"), [("training_loss.level", 8), ("training_loss.lost", 3)])
@pytest.mark.parametrize(("scale", "offset"), [(1e-6, 0.0), (1e3, 0.0), (1.0, -2.5)])
def test_the_unit_of_a_loss_does_not_matter(name: str, records: int, scale: float, offset: float) -> None:
    jumped = columns()["training_loss"].copy()
    jumped[ONSET:] += 2.0
    usual, other = (
        statistic(name, disturbed({"training_loss": (slice(None), values)}))[ONSET + records - 1]
        for values in (jumped, scale * (jumped + offset))
    )
    assert other == pytest.approx(usual, rel=0.2) and usual > 1.0


def test_a_run_that_has_learned_nothing_loses_what_exceeds_its_noise() -> None:
    losses = np.random.default_rng(0).normal(3.0, 0.1, 500)
    assert highest("training_loss.lost", disturbed({"training_loss": (slice(None), losses)})) < 0.5
    losses[LATER] += 1.5
    assert statistic("training_loss.lost", disturbed({"training_loss": (slice(None), losses)}))[ONSET + 2] > 1.5


def test_a_loss_that_never_was_anything_but_0_has_no_unit() -> None:
    assert np.isnan(statistic("training_loss.lost", disturbed({"training_loss": (slice(None), 0.0)}))).all()


def test_what_is_lost_is_seen_before_the_course_is_known() -> None:
    losses = 1.0 + 3.0 * np.exp(-np.arange(500) / 5.0)
    losses[20:] = 3.0
    early = statistic("training_loss.lost", disturbed({"training_loss": (slice(None), losses)}))
    assert early[22] > 1.0 > np.nanmax(early[:22])


def diverged(losses: list[float], planned_at: int | None = None) -> np.ndarray:
    columns = {"training_loss": np.array(losses), "planned_changes": np.full(len(losses), np.nan)}
    if planned_at is not None:
        columns["planned_changes"][planned_at] = 1.0
    return statistic("training_loss.diverged", Observations(np.arange(1, len(losses) + 1), columns))


EXPLODES = [4.8, 4.7, 4.6, 4.7, 16.0, 60.0, 270.0]


@pytest.mark.parametrize("losses", [EXPLODES, [*[0.7] * 8, *[0.7 * 1.5**power for power in range(6)]]])
def test_a_run_that_diverges_as_soon_as_it_has_begun_is_told_of_at_once(losses: list[float]) -> None:
    assert np.flatnonzero(np.isposinf(diverged(losses))).tolist() == [len(losses) - 1]


@pytest.mark.parametrize(
    "losses",
    [
        [4.8, 4.7, 4.6, 4.7, 16.0, 60.0, 4.8],  # a batch or two
        [2.0, 9.0, 2.0, 2.0, *[8.0] * 9],  # as high as it has been
        [-4.8, 4.7, 4.6, 4.7, *[60.0] * 9],  # no unit
        [1e-8 * 2**step for step in range(20)] + [0.011 + 0.001 * step for step in range(30)],  # nothing, at first
        [*[1.0] * 64, *[60.0] * 9],  # no beginning any more: a matter of what is lost
    ],
)
def test_what_a_run_may_do_in_its_first_records_is_no_divergence(losses: list[float]) -> None:
    assert not np.isposinf(diverged(losses)).any()


def test_a_run_does_not_begin_where_a_change_is_announced_but_before_its_first_record() -> None:
    assert np.isposinf(diverged(EXPLODES, planned_at=0)).any()
    assert not np.isposinf(diverged([4.8, *EXPLODES], planned_at=1)).any()


def test_what_was_climbed_in_small_steps_is_not_lost() -> None:
    ramp = 0.1 + 2.0 * np.minimum(np.arange(500) / 40.0, 1.0) ** 2
    climbed, leapt = ramp.copy(), ramp.copy()
    leapt[20:] += 2.0
    lost = [statistic("training_loss.lost", disturbed({"training_loss": (slice(None), x)})) for x in (climbed, leapt)]
    assert np.nanmax(lost[0]) == 0.0
    assert lost[1][22] > 1.0


@pytest.mark.parametrize("noise", [1e-3, 0.05])
def test_a_loss_that_creeps_away_after_a_healthy_past_is_on_a_high_level(noise: float) -> None:
    losses = 2.0 + noise * np.random.default_rng(0).normal(size=500)
    losses[LATER] += 0.02 * np.arange(500 - ONSET)
    level = statistic("training_loss.level", disturbed({"training_loss": (slice(None), losses)}))
    assert np.nanmax(level[:ONSET]) < 1.0 < np.max(level[ONSET : ONSET + 12])


def test_a_loss_that_only_falls_more_slowly_is_on_no_high_level() -> None:
    step = np.arange(1.0, 501.0)
    noise = 1e-4 * (-1.0) ** step
    losses = 5.0 - 0.5 * np.log(np.minimum(step, ONSET)) - 2e-4 * np.maximum(step - ONSET, 0.0) + noise
    slower = disturbed({"training_loss": (slice(None), losses)})
    assert highest("training_loss.level", slower, LATER) <= 0.0
    losses[LATER] += 0.2
    assert highest("training_loss.level", disturbed({"training_loss": (slice(None), losses)}), LATER) > 1.0


def test_a_loss_of_exactly_ln_vocabulary_is_certain_for_a_model_that_had_learned() -> None:
    dead = disturbed({"uniform_gap": (LATER, 1e-6)})
    assert statistic("uniform_gap.jump", dead)[ONSET] == math.inf
    untrained = disturbed({"uniform_gap": (slice(None), 0.0)})
    assert highest("uniform_gap.jump", untrained) == 0.0


def test_the_first_judgements_come_with_the_end_of_the_warm_up() -> None:
    statistics = Statistics.of(healthy())
    first = {name: int(np.flatnonzero(~np.isnan(statistics[:, j]))[0]) for j, name in enumerate(STATISTICS)}
    assert first["training_loss.level"] == first["grad_norm.level"] == 39
    assert first["update_rms.jump"] == first["step_time_s.slowdown"] - 8 == 32


def test_records_of_another_kind_are_judged_anew() -> None:
    made = columns()
    step = np.concatenate([np.arange(1, ONSET + 1), ONSET + 100 * np.arange(1, 201)])
    made["training_loss"] = np.where(np.arange(500) < ONSET, made["training_loss"], 9.0)
    found = statistic("training_loss.level", Observations(step, made))
    assert np.isnan(found[ONSET : ONSET + 39]).all()
    assert not np.isnan(found[ONSET + 39])
