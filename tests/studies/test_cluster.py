"""A job on a failing cluster: the simulation against formulae, its bounds, and its inputs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from rmetric.errors import UserError
from rmetric.simulation.hardware import INTERRUPTIONS
from studies.cluster.job import CLASSES, CORRUPTION, UNSEEN, Job, daly, young
from studies.cluster.monte_carlo import WorkCycle, observed_hours, outcomes
from studies.cluster.policies import (
    BOUND,
    CHECKPOINTS,
    WITH_REPAIR,
    WITH_WARNINGS,
    JobPolicy,
    MeasuredWarnings,
    RepairEffect,
    Warnings,
    expected_tor,
    policies,
)

NODE, NETWORK = "NODE_FAILURE", "NETWORK_DEGRADATION"
LARGE = Job(gpus=16_384)
SHORT = Job(gpus=16_384, useful_days=8.0)
ALONE = JobPolicy(name="alone")


def seen(**changes: object) -> Warnings:
    """A detector as mediocre as any."""
    steps = {
        NODE: np.array([np.nan, 1.0, 60.0, 150.0]),
        NETWORK: np.array([np.nan, 110.0]),
        CORRUPTION: np.array([np.nan, 0.0, 2.0]),
    }
    healthy = np.full(20, 700.0)
    alarms = np.zeros(20)
    alarms[:2] = 1.0
    return replace(Warnings(seen_steps=steps, false_alarms=alarms, healthy_steps=healthy), **changes)  # type: ignore[arg-type]


def checkpoint_only_h(job: Job) -> float:
    """Mean T_observed, exactly, where every failure only throws back to the last checkpoint (``vain_steps`` 0).

    .. math:: M e^{R / M} (e^{(\\tau + c) / M} - 1) T / \\tau

    with M the mean time between failures, R the restart, T the useful hours; of a job of whole intervals, the last of
    which ends in a checkpoint as well.

    **Source:** Daly 2006, the exact form for failures that only throw back.
    """
    mtbf = job.mtbf_h
    growth = math.expm1((job.interval_h + job.write_h) / mtbf)
    return mtbf * math.exp(job.restart_h / mtbf) * growth * job.useful_h / job.interval_h


def tor(job: Job, policy: JobPolicy, replicates: int = 200, seed: int = 0) -> float:
    return float((job.useful_h / observed_hours(job, policy, replicates=replicates, seed=seed)).mean())


# --- Formulae --------------------------------------------------------------------------------------------------------


def test_every_component_is_in_one_class() -> None:
    assert sorted(component for part in CLASSES.values() for component in part) == sorted(INTERRUPTIONS)
    assert sum(LARGE.rates_per_h.values()) * 54 * 24 == pytest.approx(419)


def test_the_interval_of_daly_is_nearly_the_best_and_that_of_young_near_it() -> None:
    job = replace(LARGE, vain_steps=(0.0, 0.0), write_s=300.0)
    around = np.linspace(0.3, 3.0, 271) * job.interval_h * 3600.0
    costs = [checkpoint_only_h(replace(job, interval_s=seconds)) for seconds in around.tolist()]
    assert checkpoint_only_h(job) <= min(costs) * 1.0001
    rough = replace(job, interval_s=3600.0 * young(job.write_h, job.mtbf_h))
    assert checkpoint_only_h(job) < checkpoint_only_h(rough) < 1.01 * checkpoint_only_h(job)


def test_the_interval_where_writing_takes_longer_than_failures_allow() -> None:
    assert daly(10.0, 4.0) == 4.0
    assert daly(10.0, math.inf) == math.inf


@pytest.mark.parametrize("gpus", [512, 4096, 16_384])
def test_checkpoints_alone_take_as_long_as_the_exact_formula_says(gpus: int) -> None:
    job = Job(gpus=gpus, vain_steps=(0.0, 0.0))
    job = replace(job, interval_s=3600.0 * job.useful_h / round(job.useful_h / job.interval_h))  # whole intervals
    hours = observed_hours(job, ALONE, replicates=2000)
    error = hours.std() / math.sqrt(len(hours))
    assert error < 0.002 * job.useful_h
    assert hours.mean() == pytest.approx(checkpoint_only_h(job), abs=4.0 * error + 2.0 * job.write_h)


@pytest.mark.parametrize("gpus", [8, 512, 4096, 16_384])
def test_every_policy_agrees_with_the_first_order(gpus: int) -> None:
    job = Job(gpus=gpus)
    for policy in policies(job, MeasuredWarnings(seen()), RepairEffect()):
        second_order = (job.restart_h / job.mtbf_h + job.interval_h / job.mtbf_h) ** 2 + 0.001
        assert tor(job, policy, 1000) == pytest.approx(expected_tor(job, policy), abs=second_order), policy.name


def test_where_corruption_is_all_that_happens_the_damage_is_the_formula_s() -> None:
    """Steps done in vain are work: with checkpoints and failures of their own."""
    harmless = replace(SHORT, vain_steps=(0.0, 0.0))
    harmful = replace(SHORT, vain_steps=(3500.0, 3500.0))
    lost = observed_hours(harmful, ALONE).mean() / observed_hours(harmless, ALONE).mean()
    share = LARGE.rates_per_h[CORRUPTION] * 3500 * LARGE.step_h
    assert lost == pytest.approx(1.0 + share, abs=0.01)


# --- What must follow from the model ---------------------------------------------------------------------------------


def test_without_failures_only_checkpoints_cost() -> None:
    job = Job(gpus=8, useful_days=1.0, rate_factor=0.0, interval_s=3600.0, write_s=36.0)
    assert observed_hours(job, ALONE, replicates=3) == pytest.approx(np.full(3, 24.0 + 23 * 0.01))
    assert observed_hours(replace(job, interval_s=None), ALONE, replicates=3) == pytest.approx(np.full(3, 24.0))


def test_without_failures_false_alarms_and_watch_cost_what_they_should() -> None:
    job = Job(gpus=8, useful_days=1.0, rate_factor=0.0, write_s=50.0)
    policy = JobPolicy(name="all", warnings=seen(), repair=RepairEffect(overhead_pct=2.0))
    hours = observed_hours(job, policy, replicates=4000)
    alarm_share = seen().false_alarms_per_step * 50.0 / 5.0
    assert hours.mean() == pytest.approx(24.0 * (1.02 + alarm_share), rel=1e-4)
    assert hours.std() > 0.0  # nobody knows the rate of false alarms better than its runs tell


@pytest.mark.parametrize("name", [CHECKPOINTS, WITH_WARNINGS, WITH_REPAIR, BOUND])
def test_more_failures_cost_more(name: str) -> None:
    tors = []
    for factor in (0.25, 0.5, 1.0, 2.0):
        job = replace(LARGE, rate_factor=factor)
        (policy,) = [
            policy for policy in policies(job, MeasuredWarnings(seen()), RepairEffect()) if policy.name == name
        ]
        tors.append(tor(job, policy))
    assert tors == sorted(tors, reverse=True) and tors[0] > tors[-1] + 0.02


def test_perfect_warnings_are_a_bound() -> None:
    found = outcomes(LARGE, policies(LARGE, MeasuredWarnings(seen()), RepairEffect(share=1.0, overhead_pct=0.0)))
    for name, outcome in found.items():
        assert (outcome.tors <= found[BOUND].tors + 1e-3).all(), name
    whole = 1.0 / (1.0 + LARGE.write_h / LARGE.interval_h)
    assert found[BOUND].tor.value < whole
    cheap = replace(LARGE, restart_s=0.0)
    bound = policies(cheap, MeasuredWarnings(seen()), RepairEffect())[-1]
    rates = sum(rate for kind, rate in cheap.rates_per_h.items() if kind != CORRUPTION)
    assert tor(cheap, bound) == pytest.approx(whole * (1 - rates * (cheap.write_h + 1.5 * cheap.step_h)), abs=2e-3)


def test_a_detector_that_sees_nothing_changes_nothing() -> None:
    blind = seen(seen_steps={}, false_alarms=np.zeros(20))
    assert (observed_hours(SHORT, JobPolicy(name="blind", warnings=blind)) == observed_hours(SHORT, ALONE)).all()
    unwell = seen(seen_steps={NODE: np.array([20.0])}, false_alarms=np.zeros(20), symptoms=0.0)
    assert (observed_hours(SHORT, JobPolicy(name="none", warnings=unwell)) == observed_hours(SHORT, ALONE)).all()


def test_a_warning_that_comes_too_late_for_a_checkpoint_saves_nothing() -> None:
    def with_lead(steps: float) -> np.ndarray:
        kinds = {kind: np.array([steps]) for kind in (NODE, NETWORK, UNSEEN)}
        return observed_hours(SHORT, JobPolicy(name="x", warnings=seen(seen_steps=kinds, false_alarms=np.zeros(20))))

    alone = observed_hours(SHORT, ALONE)
    assert with_lead(1.0) == pytest.approx(alone)  # 5 s, and a checkpoint takes 10
    assert with_lead(3.0).mean() < alone.mean() - 1.0


def test_repair_of_everything_leaves_no_trace_of_corruption_but_a_step() -> None:
    fixed = observed_hours(SHORT, JobPolicy(name="fixed", repair=RepairEffect(share=1.0, overhead_pct=0.0)))
    without = replace(SHORT, vain_steps=(0.0, 0.0))
    assert fixed.mean() < observed_hours(without, ALONE).mean()  # not even a restart
    assert observed_hours(
        SHORT, JobPolicy(name="none", repair=RepairEffect(share=0.0, overhead_pct=0.0))
    ) == pytest.approx(observed_hours(SHORT, ALONE))


def test_what_a_warned_job_keeps() -> None:
    cycle = WorkCycle(interval_h=1.0, write_h=0.1, slowdown=np.ones(5))
    trained = np.full(5, 2.9)  # two checkpoints at 1.1 and 2.2, then 0.7 of work
    lead = np.array([np.nan, 0.05, 0.1, 0.5, 1.85])
    # none; too late to write; just written: 0.6 of work; 0.2 of work; while the first is being written at 1.05
    assert cycle.kept(trained, lead) == pytest.approx([2.0, 2.0, 2.6, 2.2, 2.0])


# --- Randomness and intervals ----------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes_and_another_one_others() -> None:
    policy = JobPolicy(name="all", warnings=seen(), repair=RepairEffect())
    one, again, other = (observed_hours(LARGE, policy, replicates=50, seed=seed) for seed in (3, 3, 4))
    assert one.tobytes() == again.tobytes()
    assert (one != other).all()


def test_policies_share_their_luck() -> None:
    found = outcomes(SHORT, policies(SHORT, MeasuredWarnings(seen()), RepairEffect())[:2])
    alone, warned = found[CHECKPOINTS], found[WITH_WARNINGS]
    gain = warned.gained_points(alone)
    assert gain.value == pytest.approx(100.0 * (warned.tor.value - alone.tor.value))
    strangers = outcomes(SHORT, policies(SHORT, MeasuredWarnings(seen()), RepairEffect())[:2], seed=9)[
        WITH_WARNINGS
    ].gained_points(alone)
    assert gain.high - gain.low < 0.8 * (strangers.high - strangers.low)


def test_intervals_cover_what_they_should() -> None:
    policy = JobPolicy(name="warned", warnings=seen())
    interval = outcomes(SHORT, [policy], replicates=2000)["warned"].tor
    fresh = SHORT.useful_h / observed_hours(SHORT, policy, replicates=2000, seed=1)
    inside = ((fresh >= interval.low) & (fresh <= interval.high)).mean()
    assert 0.93 < inside < 0.97
    assert interval.low < expected_tor(SHORT, policy) < interval.high


def test_few_scored_runs_make_wide_intervals() -> None:
    def width(copies: int) -> float:
        steps = {UNSEEN: np.tile([np.nan, 10.0], copies)}
        policy = JobPolicy(name="w", warnings=seen(seen_steps=steps, false_alarms=np.zeros(20)))
        known = outcomes(SHORT, [ALONE, policy])
        gain = known["w"].gained_points(known["alone"])
        return gain.high - gain.low

    assert width(1) > 1.3 * width(50)


# --- Inputs ----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_said_in_one_line() -> None:
    with pytest.raises(UserError, match="repaired share"):
        RepairEffect(share=1.5)
    with pytest.raises(UserError, match="hardly gets on"):
        observed_hours(replace(LARGE, gpus=1_000_000), ALONE)


def test_what_a_campaign_does_not_say_stays_assumed() -> None:
    assert RepairEffect.of({}) == RepairEffect()
    assert RepairEffect.of({"repaired_share": None, "repair_overhead_pct": math.nan}) == RepairEffect()
    found = RepairEffect.of({"repaired_share": 1, "note": "other keys do not matter"})
    assert (found.share, found.share_measured, found.overhead_measured) == (1.0, True, False)


def test_an_unknown_detector_leaves_its_policies_undefined_with_the_reason() -> None:
    known = outcomes(LARGE, policies(LARGE, MeasuredWarnings(None, "nobody watched"), RepairEffect()), replicates=10)
    assert known[CHECKPOINTS].tor.defined and known[BOUND].tor.defined
    for name in (WITH_WARNINGS, WITH_REPAIR):
        assert known[name].tor.reason == known[name].gained_points(known[CHECKPOINTS]).reason == "nobody watched"
    assert known[CHECKPOINTS].gained_points(known[WITH_WARNINGS]).reason == "nobody watched"
