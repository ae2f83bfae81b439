"""Fits are tried on data whose answer is known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from rmetric.errors import UserError
from rmetric.evaluation.studies import Study
from rmetric.evaluation.truth import Truth
from rmetric.records import Observations, Run
from rmetric.simulation import SimulationParameters
from studies.calibration.calibrate import calibrate, render
from studies.calibration.noise import bad_batches, benign_spikes, fit_noise, mix_shifts, solve_workers
from studies.calibration.real_runs import Pair
from studies.calibration.responses import Cell, fit_path, fit_response
from studies.calibration.run_facts import RunFacts

STEPS = 720


def run(name: str, repetition: int, seed: int, *, onset: int | None = None, loss_factor=None, loss_noise=0.05) -> Run:
    rng = np.random.default_rng(seed)
    step = np.arange(1, STEPS + 1)
    healthy = 2.0 + 2.0 * np.exp(-step / 150.0)
    factor = np.ones(STEPS) if loss_factor is None else loss_factor
    norms = np.exp(0.2 * rng.standard_normal((STEPS, 4)))
    validation = np.where(step % 20 == 0, healthy, np.nan)
    columns = {
        "training_loss": healthy * factor * np.exp(loss_noise * rng.standard_normal(STEPS)),
        "validation_loss": validation,
        "learning_rate": np.full(STEPS, 1e-3),
        "grad_norm": norms.mean(axis=1),
        "update_rms": 2.6e-4 * np.exp(0.03 * rng.standard_normal(STEPS)),
        "step_time_s": np.full(STEPS, 0.02),
        "sigma_sq": norms.var(axis=1),
    }
    judged = step[4::5]
    injection = {"type": "NONE" if onset is None else "RMS_NORM_ERROR", "severity": "low", "trigger_step": onset}
    config = {
        "fault_injection": injection, "repetition": repetition, "seed": repetition, "vocabulary": 256,
        "twin": None if onset is None else f"twin{repetition}", "total_training_steps": STEPS,
    }  # fmt: skip
    held_out = {
        "event": "HELD_OUT", "steps": judged.tolist(), "held_out": (healthy * factor)[4::5].tolist(),
        "twin": healthy[4::5].tolist(),
    }  # fmt: skip
    begins = [] if onset is None else [{"event": "FAULT_INJECTED", "step": onset}]
    end = {"event": "EXPERIMENT_SUCCESS", "step": STEPS, "outcome": "clean" if onset is None else "recovered"}
    return Run(name, config, Observations(step, columns), [*begins, held_out, end])


def excess(onset: int, kick: float, jump: float, floor: float, tau: float, rate: float) -> np.ndarray:
    lag = np.arange(1, STEPS + 1) - onset
    e = kick * np.exp(-rate * lag) + floor + (jump - floor) * np.exp(-lag / tau)
    return np.where(lag >= 0, 1.0 + e, 1.0)


def pair(seed: int, onset: int = 300, noise: float = 0.0, **path: float) -> Pair:
    twin = run(f"twin{seed}", seed, seed, loss_noise=noise)
    faulty = run(f"f{seed}", seed, seed, onset=onset, loss_factor=excess(onset, **path), loss_noise=noise)
    return Pair(faulty, twin, onset, Truth("recovered", onset, None, STEPS))


def test_what_a_bad_batch_does_to_the_gradient_is_found() -> None:
    runs = []
    for seed in range(5):
        made = run(f"run{seed}", seed, seed, loss_noise=0.0)
        made.config["disturbance"] = {"type": "bad_batch", "step": 300}
        for name, factor in (("training_loss", 2.4), ("grad_norm", 2.4**1.5), ("sigma_sq", (2.4**1.5 * 2.4) ** 2)):
            usual = np.median(made.observations[name][259:299])
            made.observations.columns[name][299] = factor * usual
        runs.append(made)
    found = bad_batches(runs)
    assert found["benign_spike_gradient"].value == pytest.approx(1.5, abs=0.05)  # type: ignore[union-attr]
    assert found["benign_spike_worker_spread"].value == pytest.approx(1.0, abs=0.2)  # type: ignore[union-attr]
    assert bad_batches(runs[:1]) == {}


def test_a_change_of_the_data_mix_is_measured_beside_the_trend() -> None:
    runs = [run(f"quiet{k}", k, k, loss_noise=0.05) for k in range(20)]
    for k in range(12):
        onset = 200 + 20 * k
        later = np.arange(1, STEPS + 1) >= onset
        made = run(f"mixed{k}", 20 + k, 100 + k, loss_factor=np.where(later, 0.9, 1.0))
        made.config["disturbance"] = {"type": "data_mix", "step": onset}
        event = made.first("HELD_OUT")
        assert event is not None
        event["held_out"] = (np.array(event["twin"]) * np.where(later[4::5], 1.02, 1.0)).tolist()
        made.observations.columns["sigma_sq"][later] *= 1.2**2
        runs.append(made)
    found = mix_shifts(runs)
    # The loss falls by 5 to 20 % from the 40 steps before to those after, with another mix or without one.
    assert found["mix_shift_size"].value == pytest.approx(math.log(0.9), abs=0.012)  # type: ignore[union-attr]
    assert found["mix_shift_spread"].value < 0.012  # type: ignore[union-attr]
    assert found["mix_shift_held_out"].value == pytest.approx(0.02)  # type: ignore[union-attr]
    assert found["mix_shift_worker_spread"].value == pytest.approx(0.2, abs=0.06)  # type: ignore[union-attr]
    assert found["mix_shifts_per_1000_steps"].value == pytest.approx(1000 * 12 / (32 * STEPS))  # type: ignore[union-attr]
    assert mix_shifts(runs[:21]) == {}  # one run is too few
    assert mix_shifts(runs[20:]) == {}  # nothing to compare with


def test_the_path_of_the_excess_is_found() -> None:
    facts = [RunFacts.of(pair(k, 250 + 7 * k, kick=0.3, jump=0.1, floor=0.02, tau=60.0, rate=0.4)) for k in range(5)]
    path = fit_path(facts, 0.4)
    assert path.floor == pytest.approx(0.02, abs=0.006)
    assert path.jump == pytest.approx(0.1, abs=0.03)
    assert path.kick == pytest.approx(0.3, abs=0.06)
    lags = np.array([0.0, 10.0, 100.0, 300.0])
    truth = 0.3 * np.exp(-0.4 * lags) + 0.02 + 0.08 * np.exp(-lags / 60.0)
    assert path.at(lags, 0.4) == pytest.approx(truth, abs=0.02)


def test_what_the_onsets_own_step_shows_is_told_from_the_later_ones() -> None:
    faulty = [pair(k, 250 + 7 * k, kick=0.3, jump=0.1, floor=0.02, tau=60.0, rate=0.4) for k in range(5)]
    for each in faulty:
        each.run.observations.columns["grad_norm"][each.onset - 1] *= 5.0  # the record of the onset
        each.run.observations.columns["grad_norm"][each.onset : each.onset + 2] *= 2.0
    found = fit_response(Cell(faulty), 0.4, 0.0)
    assert found["loss_onset"].value == pytest.approx(0.4)
    assert found["grad_norm_onset"].value == pytest.approx(5.0)
    assert found["grad_norm_early"].value == pytest.approx(2.0)


def test_a_fault_without_effect_is_found_to_have_none() -> None:
    found = fit_response(
        Cell([pair(k, kick=0.0, jump=0.0, floor=0.0, tau=50.0, rate=0.4) for k in range(4)]), 0.4, 50.0
    )
    for name in ("kick", "jump", "floor", "wobble", "batch_loss", "loss_onset", "collapse_share", "non_finite_share"):
        assert found[name].value == pytest.approx(0.0, abs=1e-9), name
    for name in ("grad_norm_onset", "grad_norm_early", "grad_norm_lasting", "worker_spread", "update_rms"):
        assert found[name].value == pytest.approx(1.0), name
    assert found["collapse_share"].high > 0.3  # four runs prove little


def test_a_collapse_is_told_from_a_lasting_excess() -> None:
    faulty = pair(1, kick=0.0, jump=1.0, floor=1.0, tau=50.0, rate=0.4)
    assert not faulty.collapses_at_once
    observations = faulty.run.observations
    after = observations.step >= 300
    observations.columns["training_loss"][after] = math.log(256)
    observations.columns["grad_norm"][after] = 0.0
    assert faulty.collapses_at_once


@pytest.mark.parametrize(("spread", "tail"), [(0.1, 0.05), (0.25, 0.2)])
def test_spread_and_tail_of_the_workers_are_found(spread: float, tail: float) -> None:
    z = np.random.default_rng(5).standard_normal((60_000, 4))
    norms = np.exp(spread * (z + tail * z**3))
    ratio = np.log(norms.var(axis=1) / norms.mean(axis=1) ** 2)
    found = solve_workers(float(np.median(ratio)), float(ratio.std()))
    assert found == (pytest.approx(spread, rel=0.06), pytest.approx(tail, abs=0.04))


@pytest.mark.slow
def test_noise_is_measured_beside_the_trend() -> None:
    found = fit_noise([run(f"twin{k}", k, k) for k in range(4)])
    assert found["minibatch_noise"].value == pytest.approx(0.05, rel=0.08)
    assert found["update_spread"].value == pytest.approx(0.03, rel=0.1)
    assert found["update_level"].value == pytest.approx(0.26, rel=0.02)
    assert found["update_correlation_steps"].value < 1.0
    assert found["minibatch_noise"].low <= found["minibatch_noise"].value <= found["minibatch_noise"].high


def test_spikes_are_counted_and_sized() -> None:
    runs = [run(f"twin{k}", k, k, loss_noise=0.02) for k in range(4)]
    for item in runs[:2]:
        item.observations.columns["training_loss"][300] *= 1.5
    found = benign_spikes(runs)
    assert found["benign_spikes_per_1000_steps"].value == pytest.approx(1000 * 2 / (4 * STEPS))
    assert found["benign_spike_size"].value == pytest.approx(0.5, abs=0.1)


def test_no_spike_in_many_steps_is_no_proof_that_none_ever_comes() -> None:
    rate = benign_spikes([run(f"twin{k}", k, k, loss_noise=0.02) for k in range(4)])["benign_spikes_per_1000_steps"]
    assert rate is not None
    assert (rate.value, rate.low) == (0.0, 0.0)
    assert rate.high == pytest.approx(1000 * 3.689 / (4 * STEPS), rel=0.001)


def late_pair(seed: int, delay: int, floor: float = 0.7) -> Pair:
    made = pair(seed, 250, kick=0.0, jump=0.0, floor=0.0, tau=50.0, rate=0.4)
    lag = np.arange(1, STEPS + 1) - 250
    factor = np.where(lag >= delay, 1.0 + floor * (1.0 - np.exp(-np.maximum(lag - delay, 0) / 10.0)), 1.0)
    faulty = run(f"f{seed}", seed, seed, onset=250, loss_factor=factor, loss_noise=0.0)
    return Pair(faulty, made.twin, 250, Truth("failed", 250, 250 + delay, STEPS))


def test_a_loss_that_leaves_its_path_late_has_a_delay() -> None:
    found = fit_response(Cell([late_pair(k, delay) for k, delay in enumerate((60, 100, 140))]), 0.4, 50.0)
    assert found["delay_steps"].value == pytest.approx(100.0, abs=10.0)
    assert found["delay_spread"].value > 0.1
    assert found["jump"].value == pytest.approx(0.0, abs=0.01)
    assert found["floor"].value == pytest.approx(0.7, rel=0.1)
    assert found["time_constant_steps"].value < 25.0


def test_a_loss_that_moves_from_the_onset_on_has_none() -> None:
    cell = Cell([pair(k, kick=0.0, jump=0.0, floor=0.5, tau=100.0, rate=0.4) for k in range(3)])
    assert fit_response(cell, 0.4, 50.0)["delay_steps"].value == 0.0


@pytest.mark.slow
def test_the_fit_half_alone_decides_and_the_same_runs_give_the_same_file() -> None:
    def study(last: float) -> Study:
        runs = []
        for k in (1, 2, 3, 4):
            made = pair(k, kick=0.2, jump=0.1, floor=0.05 if k % 2 else last, tau=50.0, rate=0.4, noise=0.03)
            runs += [made.twin, made.run]
        return Study(Path("made"), runs, checksums=["x"] * len(runs))

    first, second = (render(calibrate(study(last))) for last in (0.05, 0.5))
    assert first == second
    SimulationParameters.of(first)
    assert '"runs": 4' in first


def test_a_study_without_twins_is_the_users_error() -> None:
    with pytest.raises(UserError, match="no faulty run beside its twin"):
        calibrate(Study(Path("made"), [run("twin1", 1, 1)], checksums=["x"]))
