from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from rmetric.architectures import ARCHITECTURES
from rmetric.simulation import RunSpec, Traces, TrainingSimulator, judge_traces
from rmetric.simulation.dynamics import Excess
from rmetric.simulation.gradients import worker_norms
from rmetric.simulation.healthy import expected_loss, healthy_processes, learning_rate_rel
from rmetric.simulation.simulator import undisturbed
from rmetric.streams import RunStreams
from tests.simulation.made_up import MADE_UP

P = MADE_UP.healthy
NAMES = list(ARCHITECTURES)
SPIKY = {"benign_spikes_per_1000_steps": 3.0, "benign_spike_size": 0.2, "benign_spike_held_out": 0.5}


def _controls(runs: int = 20, steps: int = 1500, architecture: str = "llama-3-8b", **parameters: float) -> Traces:
    specs = [RunSpec(architecture=architecture, seed=seed, steps=steps) for seed in range(runs)]
    changed = replace(P, **parameters)  # type: ignore[arg-type]
    return TrainingSimulator(replace(MADE_UP, healthy=changed)).simulate(specs)


@pytest.fixture(scope="module")
def controls() -> Traces:
    """Spikes of a fixed size and rate, whatever was fitted, so that there is something to look at."""
    return _controls(**SPIKY)


@pytest.fixture(scope="module")
def smooth() -> Traces:
    """The same runs without benign spikes."""
    return _controls(benign_spikes_per_1000_steps=0.0, warm_up_spikes=0.0)


# --- schedule and trend ----------------------------------------------------------------------------------------------


def test_the_learning_rate_warms_up_linearly_and_then_follows_a_cosine() -> None:
    rate = learning_rate_rel(1000, P)
    assert rate[:50] == pytest.approx(np.arange(1, 51) / 50)
    assert rate[49] == 1.0
    assert rate[-1] == pytest.approx(0.1)
    assert rate[524] == pytest.approx(0.55, abs=0.001)
    assert (np.diff(rate[49:]) < 0).all()


@pytest.mark.parametrize("steps", [1, 2, 7, 400])
def test_a_schedule_of_any_length_lies_in_0_to_1(steps: int) -> None:
    rate = learning_rate_rel(steps, P)
    assert rate.shape == (steps,)
    assert ((rate > 0) & (rate <= 1)).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_expected_loss_falls_from_ln_vocabulary_towards_the_irreducible(name: str) -> None:
    architecture = ARCHITECTURES[name]
    loss = expected_loss(learning_rate_rel(5000, P), architecture, P)
    assert loss[0] == pytest.approx(np.log(architecture.vocabulary), rel=0.01)
    assert (np.diff(loss) < 0).all()
    assert architecture.irreducible_loss < loss[-1] < 0.5 * loss[0]


def test_a_run_stays_near_its_expected_loss(controls: Traces) -> None:
    trend = expected_loss(learning_rate_rel(1500, P), ARCHITECTURES["llama-3-8b"], P)
    ratio = controls.held_out / trend
    assert np.median(ratio) == pytest.approx(1.0, abs=0.01)
    assert (np.median(np.abs(ratio - 1.0), axis=1) < 0.05).all()


# --- noise -----------------------------------------------------------------------------------------------------------


def test_noise_shrinks_with_the_loss(controls: Traces) -> None:
    def noise(rows: slice) -> float:
        return float(np.median(np.abs(np.diff(controls.training_loss[:, rows], axis=1))))

    trend = expected_loss(learning_rate_rel(1500, P), ARCHITECTURES["llama-3-8b"], P)
    early, late = slice(100, 300), slice(1300, 1500)
    assert noise(late) < 0.9 * noise(early)
    assert noise(late) / noise(early) == pytest.approx(trend[late].mean() / trend[early].mean(), rel=0.1)


def test_variance_over_workers_shrinks_with_the_loss_too(controls: Traces) -> None:
    assert np.median(controls.sigma_sq[:, 1300:]) < 0.7 * np.median(controls.sigma_sq[:, 100:300])


def test_evaluations_have_noise_of_their_own(controls: Traces) -> None:
    at = np.arange(100, 1501, 100) - 1
    noise = controls.validation_loss / controls.held_out[:, at] - 1.0
    assert noise.std() == pytest.approx(P.held_out_noise, rel=0.15)
    assert abs(noise.mean()) < 0.3 * P.held_out_noise


def _worker_norms(tail: float) -> np.ndarray:
    parameters = replace(P, worker_tail=tail)
    architecture, streams = ARCHITECTURES["llama-3-8b"], RunStreams(tuple(range(4)), 1500)
    healthy = healthy_processes(architecture, streams, parameters)
    nothing = Excess(np.zeros((4, 1500)), np.zeros((4, 1500)))
    processes = undisturbed(architecture, healthy, 4, 1500, parameters, {})
    return np.stack(list(worker_norms(parameters, streams, healthy, processes, nothing, [1500] * 4)))


def test_the_spread_over_workers_has_heavy_tails() -> None:
    def kurtosis(norms: np.ndarray) -> float:
        logarithm = np.log(norms.astype(float))
        return float(stats.kurtosis((logarithm - logarithm.mean(axis=1, keepdims=True)).ravel()))

    assert kurtosis(_worker_norms(0.15)) > 3.0
    assert abs(kurtosis(_worker_norms(0.0))) < 1.0


def test_the_spread_over_workers_is_the_one_that_is_given() -> None:
    logarithm = np.log(_worker_norms(0.0).astype(float))
    assert np.median(logarithm.std(axis=1, ddof=1)) == pytest.approx(P.worker_spread, rel=0.1)


def test_steps_take_their_time_and_now_and_then_wait_for_a_straggler(controls: Traces) -> None:
    times = controls.step_time_s
    assert np.median(times) == pytest.approx(5.0, rel=0.005)
    assert np.array_equal(times, np.round(times, 3))
    waits = times > 5.0 * 1.1  # five standard deviations
    assert waits.mean() == pytest.approx(0.003 * np.exp(-0.5 / 3.0), rel=0.3)
    assert times.min() > 4.4


# --- what looks like a fault and is none ------------------------------------------------------------------------------


def test_benign_spikes_occur_and_the_batchs_own_part_is_in_the_training_loss_alone(
    controls: Traces, smooth: Traces
) -> None:
    held_out = controls.held_out / smooth.held_out - 1.0
    training = controls.training_loss / smooth.training_loss - 1.0
    assert (held_out.max(axis=1) > 0.02).mean() > 0.5
    assert training.max() > 1.3 * held_out.max()


def test_they_heal(controls: Traces, smooth: Traces) -> None:
    spiking = controls.held_out / smooth.held_out - 1.0 > 0.01
    assert 0.001 < spiking.mean() < 0.2
    for row in spiking:
        edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
        longest = (edges[1::2] - edges[::2]).max(initial=0)
        assert longest < 400


def test_a_spike_shows_in_the_gradient(controls: Traces, smooth: Traces) -> None:
    height = controls.held_out / smooth.held_out - 1.0
    at = np.unravel_index(height.argmax(), height.shape)
    assert controls.grad_norm[at] > 1.2 * smooth.grad_norm[at]


def test_a_bad_batch_raises_the_gradient_with_the_loss_and_is_gone_in_the_next_step() -> None:
    only = {**SPIKY, "benign_spike_held_out": 0.0, "mix_shifts_per_1000_steps": 0.0, "benign_spike_size": 1.4}
    calm = {"benign_spike_gradient": 0.0, "benign_spike_worker_spread": 0.0}
    bad, plain = _controls(**only), _controls(**only, **calm)
    ratio = bad.grad_norm / plain.grad_norm
    there = bad.training_loss > 1.8 * bad.held_out
    assert there.any()
    assert np.median(ratio[there]) == pytest.approx(2.4**P.benign_spike_gradient, rel=0.35)
    assert (ratio != 1.0).mean() < 0.01
    assert np.array_equal(bad.held_out, plain.held_out)


def test_a_bad_batch_is_as_bad_as_it_is_whichever_workers_get_most_of_it() -> None:
    only = {**SPIKY, "benign_spike_held_out": 0.0, "mix_shifts_per_1000_steps": 0.0, "benign_spike_size": 1.4}
    apart, alike = (_controls(**only, benign_spike_worker_spread=wider) for wider in (1.2, 0.0))
    bad = apart.training_loss > 1.8 * apart.held_out
    assert np.allclose(apart.grad_norm, alike.grad_norm, rtol=1e-5)
    assert (apart.sigma_sq[bad] > alike.sigma_sq[bad]).mean() > 0.8
    assert np.array_equal(apart.sigma_sq[~bad], alike.sigma_sq[~bad])


def test_spikes_are_poisson_with_more_of_them_in_the_warm_up() -> None:
    streams = RunStreams(tuple(range(400)), 1000)
    quiet = replace(P, jitter_nats=0.0, benign_spikes_per_1000_steps=4.0, benign_spike_held_out=1.0)
    kick = healthy_processes(ARCHITECTURES["llama-3-8b"], streams, quiet).kick
    starts = (kick > 0) & (np.concatenate([np.zeros((400, 1)), kick[:, :-1]], axis=1) == 0)
    per_run = starts.sum(axis=1)
    assert per_run.mean() == pytest.approx(5.5, rel=0.1)
    assert per_run.var() == pytest.approx(5.5, rel=0.25)
    assert starts[:, :50].sum(axis=1).mean() == pytest.approx(1.5 + 0.05 * 4.0, rel=0.2)


def test_shifts_of_the_data_mix_come_at_their_rate_and_pass() -> None:
    streams = RunStreams(tuple(range(400)), 3000)
    healthy = healthy_processes(ARCHITECTURES["llama-3-8b"], streams, P)
    assert np.abs(np.diff(healthy.mixed, axis=1)).max() < 0.25  # they ramp, even where some meet
    begins = (healthy.mixed > 0.0) & (np.roll(healthy.mixed, 1, axis=1) == 0.0)
    # 1.5 in 3,000 steps; those that begin within one of 425 steps on average are not seen to begin.
    assert begins.sum(axis=1).mean() == pytest.approx(1.5 * math.exp(-0.0005 * 425.0), rel=0.06)
    full = healthy.mixed == 1.0
    sizes = np.unique(healthy.mix_shift[full].round(12))
    assert sizes.mean() == pytest.approx(P.mix_shift_size, abs=0.001)
    assert sizes.std() == pytest.approx(P.mix_shift_spread, rel=0.15)


def test_other_text_may_be_easier_and_the_held_out_loss_suffers() -> None:
    mixed, plain = _controls(runs=8, mix_shift_spread=0.0), _controls(runs=8, mix_shifts_per_1000_steps=0.0)
    training = mixed.training_loss / plain.training_loss - 1.0
    held_out = mixed.held_out / plain.held_out - 1.0
    full = np.isclose(held_out, P.mix_shift_held_out)
    assert full.mean() > 0.05
    assert (held_out > -1e-9).all()
    assert np.median(training[full]) == pytest.approx(P.mix_shift_size, abs=0.002)
    spread = np.sqrt(mixed.sigma_sq / plain.sigma_sq) * plain.grad_norm / mixed.grad_norm
    assert np.median(spread[full]) == pytest.approx(1.0 + P.mix_shift_worker_spread, rel=0.02)


@pytest.mark.parametrize("name", NAMES)
def test_no_control_ever_fails(name: str) -> None:
    traces = _controls(runs=60, steps=3000, architecture=name)
    assert {(outcome.kind, outcome.failure_step) for outcome in judge_traces(traces)} == {("clean", None)}
    assert np.isfinite(traces.held_out).all()
    # Beside the twin, to which a control is equal by construction: it also ends where it should.
    trend = expected_loss(learning_rate_rel(3000, P), ARCHITECTURES[name], P)
    assert np.median(traces.held_out[:, -200:] / trend[-200:]) < 1.05


def test_changing_one_kind_of_noise_changes_no_other() -> None:
    reference, changed = _controls(runs=3, steps=400), _controls(runs=3, steps=400, straggler_s=30.0, worker_spread=0.4)
    assert np.array_equal(reference.training_loss, changed.training_loss)
    assert np.array_equal(reference.validation_loss, changed.validation_loss)
    assert not np.array_equal(reference.sigma_sq, changed.sigma_sq)
    assert reference.hardware == changed.hardware
