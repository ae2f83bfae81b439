"""The robust R-Metric: the largest surprise; it streams, checkpoints and names its cause."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from rmetric import RMetric
from rmetric.compiled import sources
from rmetric.detectors import make_detector
from rmetric.detectors.r_metric import RobustRMetricDetector
from rmetric.measurements import MEASUREMENTS, Observation
from rmetric.records import Observations
from rmetric.robust import windows
from rmetric.robust.context import APART
from rmetric.robust.metric import COMPONENTS, READS, STATISTICS, RobustRMetric, RobustSettings, Statistics
from rmetric.robust.surprise import Tail
from rmetric.state import restore, state_of
from tests.helpers import bits
from tests.robust.runs import ONSET, columns, disturbed, healthy

SETTINGS = RobustSettings(
    version=3,
    threshold=2.0,
    budget_per_step=1e-4,
    tails=dict.fromkeys(STATISTICS, Tail((2.0, 4.0), (0.0, 1.0))),
)
LATER = slice(ONSET, None)


def test_r_is_the_largest_evidence() -> None:
    for value in RobustRMetric(SETTINGS).extend(disturbed({"training_loss": (LATER, 4.0), "grad_norm": (LATER, 9.0)})):
        evidence = value.lambda_evidence, value.sigma_sq_evidence, value.delta_l_evidence
        assert min(evidence) >= 0.0
        assert value.r == max(evidence)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"learning_rate": (LATER, 0.025)}, "update_rms"),
        ({"grad_norm": (LATER, 30.0)}, "grad_norm"),
        ({"training_loss": (LATER, 4.0)}, "training_loss"),
        ({"non_finite_count": (LATER, 2.0)}, "non_finite_count"),
        ({"uniform_gap": (LATER, 0.0)}, "uniform_gap"),
        ({"training_loss": (LATER, np.inf)}, "training_loss"),
        ({"hardware_events": (LATER, 1.0)}, "hardware_events"),
    ],
)
def test_one_strong_sign_alerts_alone_and_is_named(changes: dict, cause: str) -> None:
    values = RMetric.robust().extend(disturbed(changes))
    assert max(value.r for value in values[:ONSET]) < RMetric.robust().threshold
    alerts = [value for value in values[ONSET : ONSET + 30] if value.r > RMetric.robust().threshold]
    assert alerts
    assert alerts[0].cause == cause


def test_a_healthy_run_is_quiet() -> None:
    metric = RMetric.robust()
    assert max(value.r for value in metric.extend(healthy(seed=3, length=2000))) < metric.threshold


@pytest.mark.parametrize("name", READS)
def test_a_value_that_is_not_finite_is_certain_from_the_first_record(name: str) -> None:
    field = "lambda_" if name == "lambda" else name
    value = RMetric.robust().update(Observation(1, **{field: math.inf}))  # type: ignore[arg-type]
    assert value.r == math.inf
    assert value.cause == name


def test_nothing_measured_is_nothing_said() -> None:
    value = RMetric.robust().update(Observation(1))
    assert math.isnan(value.r)
    assert value.cause == ""


def test_gaps_raise_nothing() -> None:
    for name in columns():
        values = RMetric.robust().extend(disturbed({name: (LATER, np.nan)}))
        assert max(value.r for value in values[ONSET:] if not math.isnan(value.r)) < RMetric.robust().threshold


def test_streaming_and_batch_and_the_detector_agree() -> None:
    run = disturbed({"grad_norm": (LATER, 9.0)})
    one = RMetric.robust()
    r = [value.r for value in RMetric.robust().extend(run)]
    assert bits([one.update(row).r for row in run]) == bits(r)
    assert bits(make_detector("r_metric_robust").score_run(run)) == bits(r)


RISEN = {"training_loss": (LATER, 8.0)}
BROKEN = {"grad_norm": (slice(ONSET, ONSET + 2), 1e6), "training_loss": (slice(ONSET, ONSET + 2), 8.0)}


@pytest.mark.parametrize(
    ("changes", "later", "every", "seen"),
    [
        (RISEN, 0.6, 1, False),
        (RISEN, 0.6, 10, False),
        (RISEN, 0.6, 200, False),
        (RISEN, -0.5, 1, True),
        (RISEN, -0.5, 2, True),
        (BROKEN, 0.6, 1, True),
    ],
    ids=[
        "rewards hold",
        "rarely told",
        "episodes longer than a window",
        "rewards fall",
        "fall, told of every other record",
        "a jump",
    ],
)
def test_a_loss_that_rises_is_no_evidence_while_rewards_hold(
    changes: dict[str, tuple[slice, float]], later: float, every: int, seen: bool
) -> None:
    run = disturbed(changes)
    rewards = 0.5 + 0.1 * np.sin(np.arange(len(run)))
    rewards[LATER] += later - 0.5
    rewards[np.arange(len(run)) % every > 0] = np.nan
    agent = Observations(run.step, {**run.columns, "reward": rewards})
    r = np.array([value.r for value in RMetric.robust().extend(agent)])
    assert (r > RMetric.robust().threshold).any() == seen
    assert bits(make_detector("r_metric_robust").score_run(agent)) == bits(r)


def test_rewards_of_long_ago_hold_nothing() -> None:
    run = disturbed(RISEN)
    rewards = np.full(len(run), np.nan)
    rewards[: ONSET // 2] = 0.5
    agent = Observations(run.step, {**run.columns, "reward": rewards})
    r = make_detector("r_metric_robust").score_run(agent)
    assert (r > RMetric.robust().threshold).any()
    assert bits([value.r for value in RMetric.robust().extend(agent)]) == bits(r)


def with_evaluations_between(run: Observations) -> Observations:
    """Records of 50 steps each, and rows of evaluations after every 117 steps."""
    ends = np.setdiff1d(np.arange(117, 50 * len(run), 117), 50 * run.step)
    step = np.union1d(50 * run.step, ends)
    at = np.searchsorted(step, 50 * run.step)
    columns = {name: np.full(len(step), np.nan) for name in run.columns}
    for name, values in run.columns.items():
        columns[name][at] = values
    columns["validation_loss"] = np.where(np.isin(step, ends), 2.0 + 3.0 * step**-0.5, np.nan)
    return Observations(step, columns)


AT_STEPS = {
    "evaluations between": with_evaluations_between,
    "1 and 99 in turn": lambda run: Observations(np.cumsum(np.resize([1, 99], len(run))), dict(run.columns)),
    "any from 1 to 50": lambda run: Observations(
        np.cumsum(np.random.default_rng(0).integers(1, 51, len(run))), dict(run.columns)
    ),
}


@pytest.mark.parametrize("at_steps", AT_STEPS.values(), ids=AT_STEPS)
def test_records_at_irregular_intervals_are_judged(at_steps: Callable[[Observations], Observations]) -> None:
    for run, seen in ((healthy(), False), (disturbed(RISEN), True)):
        irregular = at_steps(run)
        r = make_detector("r_metric_robust").score_run(irregular)
        assert (r > RMetric.robust().threshold).any() == seen
        assert bits([value.r for value in RMetric.robust().extend(irregular)]) == bits(r)


@pytest.mark.parametrize("unit", [1e-6, 1e7, 1e12])
def test_a_loss_is_judged_in_any_unit(unit: float) -> None:
    run = disturbed(RISEN)
    r = make_detector("r_metric_robust").score_run(
        Observations(run.step, {"training_loss": unit * run["training_loss"]})
    )
    alone = make_detector("r_metric_robust").score_run(Observations(run.step, {"training_loss": run["training_loss"]}))
    assert (alone > RMetric.robust().threshold).any()
    assert r == pytest.approx(alone, rel=1e-6, nan_ok=True)


def changed(*names: str, **told: tuple[list[int] | slice, list[float] | float]) -> Observations:
    """Measurements of four times the size from a step on; what is told of it: name → records, values."""
    made = columns()
    for name in names:
        made[name][LATER] *= 4.0
    for name, (records, values) in told.items():
        made[name][records] = values
    return Observations(np.arange(1, len(made["grad_norm"]) + 1), made)


RESTART = {
    "learning_rate": (slice(ONSET - 40, ONSET), 1e-4),
    "update_rms": (slice(None), np.nan),  # one that does not follow its rate would be evidence
}


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("grad_norm", "update_rms"), {"trained_parameters": ([0, ONSET], [4.0, 9.0])}),
        (("training_loss", "grad_norm", "update_rms", "step_time_s"), {"planned_changes": ([ONSET], [1.0])}),
        (("step_time_s",), {"planned_changes": ([ONSET], [2.0])}),
        (("training_loss", "grad_norm"), RESTART),
    ],
    ids=["unfrozen layers", "announced", "slower steps, announced", "a schedule begins again"],
)
def test_where_training_is_known_to_change_what_is_usual_is_learned_anew(names: tuple[str, ...], told: dict) -> None:
    threshold = RMetric.robust().threshold
    run = changed(*names, **told)
    highest = [max(value.r for value in RMetric.robust().extend(each)) for each in (changed(*names), run)]
    assert highest[0] > threshold > highest[1]
    assert bits(make_detector("r_metric_robust").score_run(run)) == bits([v.r for v in RMetric.robust().extend(run)])
    pieces, whole = RMetric.robust(), RMetric.robust().r_of(run)
    parts = [pieces.r_of(run.rows(rows)) for rows in (slice(0, ONSET), slice(ONSET, None))]
    assert bits(np.concatenate(parts)) == bits(whole)


def test_after_an_announced_change_a_gradient_norm_may_rise_as_in_a_run_that_begins() -> None:
    made = columns()
    made["planned_changes"][ONSET] = 1.0
    at, steps = STATISTICS.index("grad_norm.level"), np.arange(1, len(made["grad_norm"]) + 1)
    announced = Statistics.of(Observations(steps, made))[ONSET:, at]
    begun = Statistics.of(Observations(steps[:-ONSET], {"grad_norm": made["grad_norm"][ONSET:]}))[:, at]
    assert not np.isnan(begun).all()
    assert bits(announced) == bits(begun)


def test_what_breaks_after_an_announced_change_is_seen_and_so_is_what_no_step_may_have() -> None:
    planned = np.full(len(columns()["training_loss"]), np.nan)
    planned[ONSET - 100] = planned[ONSET + 20] = 1.0
    worse = disturbed({"planned_changes": (slice(None), planned), "training_loss": (slice(ONSET, ONSET + 9), 4.0)})
    broken = disturbed({"planned_changes": (slice(None), planned), "grad_norm": (ONSET + 20, np.inf)})
    for run in (worse, broken):
        r = make_detector("r_metric_robust").score_run(run)
        assert (r > RMetric.robust().threshold).any()


@pytest.mark.parametrize(("every", "judged"), [(APART - 1, False), (APART, True)])
def test_between_changes_that_are_announced_too_often_no_loss_gradient_or_update_is_judged(
    every: int, judged: bool
) -> None:
    made = columns()
    made["planned_changes"][::every] = 1.0
    run = Observations(np.arange(1, len(made["grad_norm"]) + 1), made)
    statistics = dict(zip(STATISTICS, Statistics.of(run).T, strict=True))
    moving = [name for name in statistics if name.startswith(("training_loss", "grad_", "update_rms", "step_time_s"))]
    moving.remove("training_loss.diverged")  # of a run's first records alone
    assert len(moving) == 8
    assert any(not np.isnan(statistics[name]).all() for name in moving) == judged


def test_events_of_the_hardware_are_remembered_over_an_announced_change() -> None:
    planned = np.full(len(columns()["training_loss"]), np.nan)
    planned[ONSET + 1] = 1.0
    events = {"hardware_events": (slice(ONSET, ONSET + 6), 1.0)}
    told = disturbed({**events, "planned_changes": (slice(None), planned)})
    lambdas = [[value.lambda_evidence for value in RMetric.robust().extend(run)] for run in (disturbed(events), told)]
    assert lambdas[0] == lambdas[1]


def test_a_checkpoint_goes_on_as_if_nothing_had_been() -> None:
    run = disturbed({"training_loss": (LATER, 4.0)})
    rows = list(run)
    whole, first, second = (RobustRMetricDetector() for _ in range(3))
    expected = [whole.update(row) for row in rows]
    for row in rows[:250]:
        first.update(row)
    restore(second, json.loads(json.dumps(state_of(first))))
    assert bits([second.update(row) for row in rows[250:]]) == bits(expected[250:])


def test_restoring_a_checkpoint_leaves_the_shipped_settings_alone() -> None:
    before = RobustSettings.shipped()
    detector = RobustRMetricDetector()
    state = state_of(detector)
    changed = list(state["_metric"]["_settings"])
    changed[RobustSettings._fields.index("threshold")] = 99.0
    state["_metric"]["_settings"] = changed
    restore(RobustRMetricDetector(), state)
    assert RobustSettings.shipped() is before
    assert RobustRMetricDetector().threshold == before.threshold


def test_fresh_forgets() -> None:
    metric = RMetric.robust()
    first = [value.r for value in metric.extend(healthy())]
    assert bits([value.r for value in metric.fresh().extend(healthy())]) == bits(first)


def test_the_threshold_is_the_shipped_one_and_can_be_changed() -> None:
    detector = make_detector("r_metric_robust")
    assert detector.threshold == RobustSettings.shipped().threshold == RMetric.robust().threshold
    assert replace(detector, threshold=9.0).threshold == 9.0  # type: ignore[type-var]


def test_every_statistic_belongs_to_a_measurement_that_is_read() -> None:
    assert {name.partition(".")[0] for name in STATISTICS} <= set(READS) <= set(MEASUREMENTS)
    assert len(STATISTICS) == len(set(STATISTICS)) == sum(len(part.statistics) for part in COMPONENTS)


def test_compiled_functions_are_kept_under_a_name_that_changes_with_any_source_that_they_froze() -> None:
    kept = {name: found.py_func for name, found in vars(windows).items() if isinstance(found, Dispatcher)}
    own = {name: function for name, function in kept.items() if function.__module__ == windows.__name__}
    assert {"_lost", "_judge", "_evidence"} <= own.keys()
    assert {name: function.__qualname__ for name, function in own.items()} == {
        name: f"{name}_{sources(Path(windows.__file__).parent):x}" for name in own
    }
