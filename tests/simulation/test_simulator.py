from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from scipy import stats

from rmetric.architectures import ARCHITECTURES
from rmetric.faults import FAULTS, Fault, RunProcesses, register_fault
from rmetric.simulation import RunSpec, SimulationParameters, Traces, TrainingSimulator, run_batch
from rmetric.streams import RunStreams
from tests.helpers import lines_of

pytestmark = pytest.mark.usefixtures("made_up_parameters")
SIMULATED = [name for name, fault in FAULTS.items() if fault.simulated]
STEPS = 600
SHARED = {"steps": STEPS, "log_every": 10, "eval_every": 50}
PER_STEP = [
    "held_out", "training_loss", "learning_rate", "grad_norm", "sigma_sq", "update_rms", "step_time_s",
    "non_finite_count",
]  # fmt: skip


def _specs(architecture: str) -> list[RunSpec]:
    """Each fault that fits, at two severities, and controls."""
    dense = not ARCHITECTURES[architecture].experts
    faults = [name for name, fault in FAULTS.items() if fault.simulated and not (fault.needs_experts and dense)]
    plain = [
        RunSpec(architecture=architecture, fault=fault, severity=severity, seed=10 * number + 1, **SHARED)
        for number, fault in enumerate([*faults, "LR_SPIKE+NODE_FAILURE"])
        for severity in ("low", "high")
    ]
    return [*plain, *(RunSpec(architecture=architecture, seed=seed, **SHARED) for seed in (1, 501, 502))]


@pytest.fixture(scope="module", params=list(ARCHITECTURES))
def specs(request: pytest.FixtureRequest) -> list[RunSpec]:
    return _specs(request.param)


@pytest.fixture(scope="module")
def logs(specs: list[RunSpec]) -> dict[RunSpec, bytes]:
    return {spec: log.content for spec, log in zip(specs, run_batch(specs), strict=True)}


@pytest.fixture(scope="module")
def traces(specs: list[RunSpec]) -> Traces:
    return TrainingSimulator().simulate(specs)


# --- a run hangs on its spec alone -----------------------------------------------------------------------------------


def test_a_log_is_the_same_in_any_order(specs: list[RunSpec], logs: dict[RunSpec, bytes]) -> None:
    shuffled = [specs[number] for number in np.random.default_rng(0).permutation(len(specs))]
    for spec, log in zip(shuffled, run_batch(shuffled), strict=True):
        assert log.content == logs[spec], spec.experiment_id


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_log_is_the_same_in_a_batch_of_any_size(specs: list[RunSpec], logs: dict[RunSpec, bytes], size: int) -> None:
    for first in range(0, len(specs), size):
        batch = specs[first : first + size]
        for spec, log in zip(batch, run_batch(batch), strict=True):
            assert log.content == logs[spec], spec.experiment_id


def test_different_seeds_give_different_runs() -> None:
    batch = [
        RunSpec(architecture="llama-3-8b", fault="LR_SPIKE", seed=seed, steps=400, name="same") for seed in range(30)
    ]
    records = [b"".join(log.content.splitlines()[1:]) for log in run_batch(batch)]
    assert len(set(records)) == 30


@pytest.mark.parametrize("change", [{"number": 5}, {"repetition": 4}, {"name": "x"}])
def test_name_and_number_change_nothing_but_the_name(change: dict) -> None:
    spec = RunSpec(architecture="llama-3-8b", fault="LR_SPIKE", seed=3, steps=400)
    first, second = (lines_of(log.content) for log in run_batch([spec, replace(spec, **change)]))
    assert first[1:] == second[1:]


def test_adding_a_fault_changes_no_existing_run(
    specs: list[RunSpec], logs: dict[RunSpec, bytes], clean_registries: None
) -> None:
    @register_fault("NIC_FLAP")
    @dataclass(frozen=True, kw_only=True)
    class NicFlap(Fault):
        """A link drops now and then."""

        source = "a test"

        def simulate(self, state: RunProcesses, active: np.ndarray, rng: RunStreams) -> None:
            state.stall_s += active * rng.exponential("stall")
            state.kick += active * rng.random("kick")

    new = RunSpec(architecture=specs[0].architecture, fault="NIC_FLAP", seed=1, **SHARED)
    mixed = [new, *specs, replace(new, seed=2)]
    for spec, log in list(zip(mixed, run_batch(mixed), strict=True))[1:-1]:
        assert log.content == logs[spec], spec.experiment_id


def test_runs_that_differ_in_shape_cannot_share_a_batch() -> None:
    spec = RunSpec(architecture="llama-3-8b", steps=400)
    for change in ({"architecture": "mistral-7b"}, {"steps": 500}, {"log_every": 5}, {"eval_every": 20}):
        with pytest.raises(ValueError, match="cannot be simulated together"):
            TrainingSimulator().simulate([spec, replace(spec, **change)])
    with pytest.raises(ValueError, match="at least one run"):
        TrainingSimulator().simulate([])


# --- twins -----------------------------------------------------------------------------------------------------------


def test_the_twin_inside_the_batch_is_the_control_with_the_same_seed(specs: list[RunSpec], traces: Traces) -> None:
    controls = TrainingSimulator().simulate([spec.twin() for spec in specs])
    assert np.array_equal(traces.twin_held_out, controls.held_out)
    assert np.array_equal(controls.twin_held_out, controls.held_out)
    assert len(np.unique(traces.twin_held_out[:, -1])) > 10


def test_before_its_onset_a_faulty_run_is_its_twin(specs: list[RunSpec], traces: Traces) -> None:
    controls = TrainingSimulator().simulate([spec.twin() for spec in specs])
    for row, onset in enumerate(traces.onset):
        until = STEPS if onset is None else onset - 1
        for key in PER_STEP:
            assert np.array_equal(getattr(traces, key)[row, :until], getattr(controls, key)[row, :until]), key
        evaluated = until // 50
        assert np.array_equal(traces.validation_loss[row, :evaluated], controls.validation_loss[row, :evaluated])
        before = [[event for event in run[row] if event.step <= until] for run in (traces.hardware, controls.hardware)]
        assert before[0] == before[1]


def test_before_its_onset_a_faulty_log_is_its_twins_byte_for_byte(
    specs: list[RunSpec], logs: dict[RunSpec, bytes]
) -> None:
    compared = 0
    for twin_log, (spec, content) in zip(run_batch([spec.twin() for spec in specs]), logs.items(), strict=True):
        ours, theirs = content.splitlines()[1:], twin_log.content.splitlines()[1:]
        onset = json.loads(content.splitlines()[0])["config"]["fault_injection"]["trigger_step"]
        end = STEPS if onset is None else onset
        early = [line for line in ours if json.loads(line)["step"] < end]
        assert early == theirs[: len(early)], spec.experiment_id
        compared += len(early)
    assert compared > 20 * len(specs)


def test_after_the_onset_it_shares_all_noise_with_its_twin() -> None:
    spec = RunSpec(architecture="llama-3-8b", fault="GQA_MISMATCH", severity="low", seed=1, steps=1000, onset=300)
    faulty, control = (TrainingSimulator().simulate([item]) for item in (spec, spec.twin()))
    relative = faulty.training_loss[0] / control.training_loss[0]
    noise = SimulationParameters.shipped().healthy.minibatch_noise
    assert relative[-100:].std() < 0.6 * noise  # the noise of two unrelated runs would leave 1.4 times as much
    assert relative[300] > 1.01  # what the onset has done shows in the step after it


# --- onsets ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def onsets() -> np.ndarray:
    batch = [RunSpec(architecture="llama-3-8b", fault="LR_SPIKE", seed=seed, steps=400) for seed in range(1500)]
    drawn = [TrainingSimulator().simulate(batch[first : first + 500]).onset for first in (0, 500, 1000)]
    return np.concatenate(drawn)


def test_onsets_are_uniform_over_the_middle_half(onsets: np.ndarray) -> None:
    assert (onsets.min(), onsets.max()) == (101, 300)
    assert stats.chisquare(np.bincount((onsets - 101) // 10, minlength=20)).pvalue > 0.01


@pytest.mark.parametrize("grid", [2, 5, 10, 50])
def test_onsets_lie_on_no_grid(onsets: np.ndarray, grid: int) -> None:
    assert stats.chisquare(np.bincount(onsets % grid, minlength=grid)).pvalue > 0.01


def test_an_onset_depends_on_the_seed_and_not_on_the_fault() -> None:
    batch = [RunSpec(architecture="gpt-4-moe", fault=fault, seed=4, steps=400) for fault in SIMULATED]
    assert len(set(TrainingSimulator().simulate(batch).onset)) == 1


@pytest.mark.parametrize("onset", [1, 200, 400])
def test_a_given_onset_is_kept(onset: int) -> None:
    spec = RunSpec(architecture="llama-3-8b", fault="LR_SPIKE", onset=onset, steps=400)
    faulty, control = (TrainingSimulator().simulate([item]) for item in (spec, spec.twin()))
    changed = np.flatnonzero(faulty.learning_rate[0] != control.learning_rate[0]) + 1
    assert faulty.onset == [onset]
    assert changed[0] == onset
    assert changed[-1] == min(onset + 19, 400)


def test_a_control_has_no_onset_even_if_one_is_given() -> None:
    assert TrainingSimulator().simulate([RunSpec(architecture="llama-3-8b", onset=100, steps=400)]).onset == [None]


@pytest.mark.parametrize("steps", [1, 2, 3, 9, 11])
def test_the_shortest_runs_can_be_simulated(steps: int) -> None:
    batch = [
        RunSpec(architecture="gpt-4-moe", fault=fault, seed=1, steps=steps, log_every=1)
        for fault in (*SIMULATED, "NONE")
    ]
    for log in run_batch(batch):
        assert lines_of(log.content)[-1]["event"] in ("EXPERIMENT_SUCCESS", "EXPERIMENT_FAILURE")
        assert log.onset is None or 1 <= log.onset <= steps


# --- what the traces hold --------------------------------------------------------------------------------------------


def test_traces_are_numbers_until_the_loss_is_not(traces: Traces) -> None:
    for row, broken in enumerate(traces.non_finite_step):
        for key in ("held_out", "training_loss", "grad_norm", "sigma_sq"):
            values = getattr(traces, key)[row]
            until = STEPS if broken is None else broken - 1
            skipped = (traces.non_finite_count[row, :until] > 0) & (key == "grad_norm")
            assert np.isfinite(values[:until][~skipped]).all(), key
            assert np.isnan(values[until:]).all(), key
        for key in ("learning_rate", "step_time_s"):
            assert np.isfinite(getattr(traces, key)[row]).all(), key


def test_gradients_are_those_of_the_whole_run_until_no_more_are_wanted(specs: list[RunSpec], traces: Traces) -> None:
    ends = [1 + 37 * row % STEPS for row in range(len(specs))]
    some = TrainingSimulator().begin(specs).observed(ends)
    for row, end in enumerate(ends):
        for key in ("grad_norm", "sigma_sq"):
            values, whole = getattr(some, key)[row], getattr(traces, key)[row]
            assert np.array_equal(values[:end], whole[:end], equal_nan=True), key
            assert np.isnan(values[end:]).all(), key
        assert np.array_equal(some.training_loss[row], traces.training_loss[row], equal_nan=True)


def test_non_finite_values_are_counted_from_the_step_on_at_which_they_begin(traces: Traces) -> None:
    for row, broken in enumerate(traces.non_finite_step):
        expected = np.isnan(traces.grad_norm[row]).astype(float)
        if broken is not None:
            assert (expected[broken - 1 :] == 1.0).all()
        assert np.array_equal(traces.non_finite_count[row] > 0, expected > 0)


def test_measurements_are_physical(traces: Traces) -> None:
    for key in ("training_loss", "grad_norm", "sigma_sq", "update_rms", "step_time_s", "learning_rate"):
        values = getattr(traces, key)
        assert (values[np.isfinite(values)] >= 0).all(), key
    assert traces.step_time_s.min() > 3.0
    assert traces.validation_loss.shape == (len(traces.specs), STEPS // 50)


def test_a_clearing_lies_after_its_onset_and_within_the_run(traces: Traces) -> None:
    for spec, onset, cleared in zip(traces.specs, traces.onset, traces.cleared, strict=True):
        duration = max((part.duration_steps for part in spec.make_fault().parts), default=0) if onset else 0  # type: ignore[union-attr]
        lasting = onset is None or any(not part.duration_steps for part in spec.make_fault().parts)  # type: ignore[union-attr]
        expected = None if lasting or onset + duration > STEPS else onset + duration  # type: ignore[operator]
        assert cleared == expected, spec.experiment_id
    assert any(traces.cleared)


def test_every_trace_has_one_row_a_run(traces: Traces) -> None:
    for item in fields(traces):
        value = getattr(traces, item.name)
        rows = {len(array) for array in value.values()} if isinstance(value, dict) else {len(value)}
        assert rows == {len(traces.specs)}, item.name


def test_architectures_differ_in_loss_and_learning_rate() -> None:
    ends = {}
    for name, profile in ARCHITECTURES.items():
        traces = TrainingSimulator().simulate([RunSpec(architecture=name, seed=1, steps=400)])
        assert traces.learning_rate.max() == pytest.approx(profile.peak_learning_rate)
        assert traces.held_out[0, 0] == pytest.approx(profile.initial_loss, rel=0.06)
        ends[name] = traces.held_out[0, -1]
    assert len(set(ends.values())) == 3


def test_a_fault_that_throws_the_parameters_off_raises_the_gradient_norm() -> None:
    spec = RunSpec(architecture="llama-3-8b", fault="RMS_NORM_ERROR", severity="high", seed=1, steps=1000, onset=300)
    faulty, control = (TrainingSimulator().simulate([item]) for item in (spec, spec.twin()))
    assert np.median(faulty.grad_norm[0, 299:303] / control.grad_norm[0, 299:303]) > 2.0
