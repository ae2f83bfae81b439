"""What every registered fault promises, whoever wrote it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import FrozenInstanceError, dataclass, fields
from types import SimpleNamespace
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest

from rmetric.architectures import ARCHITECTURES
from rmetric.errors import UserError
from rmetric.faults import (
    FAULTS,
    NEVER,
    SEVERITIES,
    Bug,
    CombinedFault,
    Fault,
    RunProcesses,
    check_fault_fits,
    file_name_part,
    injected,
    make_fault,
    register_fault,
)
from rmetric.registry import PluginError
from rmetric.simulation import RunSpec, SimulationParameters, TrainingSimulator, run_batch
from rmetric.streams import RunStreams
from tests.faults.common import ALL, BUGS, MOE, NAMES, between, disturbed, pair, response, undisturbed
from tests.helpers import records_of

READ_ONLY = ("learning_rate_rel", "healthy_loss")
PLAIN = ("architecture", "healing_rate", "responses", "events", "reported")
ARRAYS = [item.name for item in fields(RunProcesses) if item.name not in PLAIN]
OF_THE_MACHINE = {"stall_s", "worker_lost_at", "lost_worker"}
MEASURED = ("training_loss", "learning_rate", "grad_norm", "sigma_sq", "update_rms", "step_time_s", "non_finite_count")
EVERY = [(name, severity) for name in NAMES for severity in SEVERITIES]
CHOICES = [
    (name, parameter, get_args(kind))
    for name in ALL
    for parameter, kind in get_type_hints(FAULTS[name]).items()
    if get_origin(kind) is Literal
]


def _arrays(processes: RunProcesses) -> dict[str, np.ndarray]:
    return {name: getattr(processes, name) for name in ARRAYS} | processes.reported


# --- declaration -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_a_fault_says_what_happens_and_where_that_is_described(name: str) -> None:
    fault = FAULTS[name]
    assert fault.name == name
    assert fault.__doc__
    assert not fault.__doc__.startswith(f"{fault.__name__}(")  # what a dataclass writes for itself
    assert fault.source


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_has_three_severities_that_differ(name: str) -> None:
    assert tuple(FAULTS[name].severities) == SEVERITIES
    made = [make_fault(name, severity) for severity in SEVERITIES]
    assert len({repr(fault) for fault in made}) == 3
    assert make_fault(name) == made[1]


@pytest.mark.parametrize("name", ALL)
def test_a_severity_names_no_parameter_at_its_default(name: str) -> None:
    defaults = {item.name: item.default for item in fields(FAULTS[name])}
    for severity, changes in FAULTS[name].severities.items():
        assert not {*changes.items()} & {*defaults.items()}, severity


@pytest.mark.parametrize("name", ALL)
def test_a_fault_cannot_be_changed_once_made(name: str) -> None:
    fault = make_fault(name)
    with pytest.raises(FrozenInstanceError):
        fault.duration_steps = 5  # type: ignore[misc]
    assert hash(fault) == hash(make_fault(name))


@pytest.mark.parametrize("name", ALL)
def test_the_parameters_are_keyword_only_and_each_is_described(name: str) -> None:
    with pytest.raises(TypeError):
        FAULTS[name](3)  # type: ignore[call-arg, misc]
    source = inspect.getsource(FAULTS[name])
    own = [item.name for item in fields(FAULTS[name]) if item.name != "duration_steps"]
    assert source.count('    """') >= len(own)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_the_parameters_survive_json(name: str, severity: str) -> None:
    fault = make_fault(name, severity)
    parameters = json.loads(json.dumps(fault.parameters, allow_nan=False))
    assert parameters == fault.parameters
    assert type(fault)(**parameters) == fault


# --- simulation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "severity"), EVERY)
def test_nothing_changes_before_the_onset_and_something_does_after(name: str, severity: str) -> None:
    onset = np.array([1, 120, 301, 555, 799])
    before, after = undisturbed(), disturbed(make_fault(name, severity), onset=onset)
    early = ~between(5, 800, onset)
    for key, array in _arrays(after).items():
        if array.ndim > 1:
            assert np.array_equal(array[early], _arrays(before)[key][early]), key
    lost = after.worker_lost_at
    assert (lost >= onset).all()
    for row, events in enumerate(after.events):
        assert all(onset[row] <= event.step <= 800 for event in events)
    longest = 1  # the run whose onset leaves it most of its steps
    assert any(
        not np.array_equal(array[longest], _arrays(before)[key][longest]) for key, array in _arrays(after).items()
    )


@pytest.mark.parametrize(("name", "severity"), EVERY)
def test_a_fault_that_is_never_on_does_nothing(name: str, severity: str) -> None:
    before, after = undisturbed(), undisturbed()
    nowhere = np.zeros((5, 800), dtype=bool)
    make_fault(name, severity).simulate(after, nowhere, RunStreams(tuple(range(5)), 800))
    for key, array in _arrays(after).items():
        assert np.array_equal(array, _arrays(before)[key]), key
    assert after.events == before.events


@pytest.mark.parametrize(("name", "severity"), EVERY)
def test_a_fault_stays_within_its_rows_and_its_group_does_not_matter(name: str, severity: str) -> None:
    fault = make_fault(name, severity)
    before, after = undisturbed(), undisturbed()
    streams, active = RunStreams(tuple(range(5)), 800), between(5, 800, 201, fault.duration_steps)
    for rows in (slice(1, 2), slice(2, 4)):
        fault.simulate(after.of_runs(rows), active[rows], streams.of_runs(rows).within(f"fault {name}"))
    whole = disturbed(fault)
    inside, outside = slice(1, 4), [0, 4]
    for key, array in _arrays(after).items():
        assert np.array_equal(array[outside], _arrays(before)[key][outside]), key
        assert np.array_equal(array[inside], _arrays(whole)[key][inside]), key
    assert [after.events[row] for row in outside] == [[], []]
    assert after.events[inside] == whole.events[inside]


@pytest.mark.parametrize(("name", "severity"), EVERY)
def test_a_fault_touches_the_processes_and_nothing_else(name: str, severity: str) -> None:
    fault, state = make_fault(name, severity), undisturbed()
    active = between(5, 800, 201, fault.duration_steps)
    known = active.copy()
    held = {key: id(array) for key, array in _arrays(state).items()}
    kinds = {key: (array.dtype, array.shape) for key, array in _arrays(state).items()}
    before, attributes, dice = deepcopy(state), set(vars(state)), np.random.get_state()[1].copy()  # noqa: NPY002
    fault.simulate(state, active, RunStreams(tuple(range(5)), 800))
    assert set(vars(state)) == attributes
    assert {key: id(array) for key, array in _arrays(state).items()} == held
    assert {key: (array.dtype, array.shape) for key, array in _arrays(state).items()} == kinds
    assert np.array_equal(active, known)
    assert np.array_equal(np.random.get_state()[1], dice)  # noqa: NPY002
    assert state.architecture == before.architecture
    for key in READ_ONLY:
        assert np.array_equal(getattr(state, key), getattr(before, key))
    assert fault == make_fault(name, severity)


@pytest.mark.parametrize(("name", "severity"), EVERY)
def test_the_processes_stay_physical(name: str, severity: str) -> None:
    state = disturbed(make_fault(name, severity))
    for key, array in _arrays(state).items():
        assert np.isfinite(array).all(), key
    for key in ("kick", "jump", "floor", "floor_rate", "wobble", "stall_s", "non_finite_gradients", "gradient_factor"):
        assert (getattr(state, key) >= 0.0).all(), key
    assert (state.floor_rate <= 1.0).all()
    assert (state.learning_rate_factor > 0.0).all()
    assert ((state.worker_lost_at == NEVER) == (state.lost_worker == -1)).all()
    for events in state.events:
        assert all(0 <= event.worker < 8 and event.kind in ("correctable", "fatal") for event in events)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "ROUTER_IMBALANCE"])
def test_a_high_severity_shows_in_some_measurement(name: str) -> None:
    # A router's imbalance hardly shows: real tiny models learn around it.
    runs = pair(name, "high")
    shown = []
    for key in MEASURED:
        faulty, control = getattr(runs.faulty, key)[:, 399:], getattr(runs.control, key)[:, 399:]
        largest = [np.nanmax(np.abs(trace)) for trace in (faulty, control)]
        mean = [np.nanmean(trace) for trace in (faulty, control)]
        shown.append(abs(mean[0] - mean[1]) > 0.02 * abs(mean[1]) or largest[0] > 1.5 * largest[1])
    assert any(shown)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_more_severe_runs_do_not_fail_less_often(name: str) -> None:
    low, medium, high = (pair(name, severity, runs=16, steps=1500, onset=None).failed_share for severity in SEVERITIES)
    assert low <= medium + 0.25
    assert medium <= high + 0.25
    assert low <= high + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_the_simulated_response_is_the_fitted_one(name: str, severity: str) -> None:
    fault = FAULTS[name]
    state = disturbed(make_fault(name, severity), runs=200)
    if name not in SimulationParameters.shipped().responses:  # it has another's, or disturbs the machine alone
        healthy = _arrays(undisturbed(runs=200))
        changed = {key for key, array in _arrays(state).items() if not np.array_equal(array, healthy[key])}
        assert fault.responds_as or changed <= OF_THE_MACHINE
        return
    fitted = response(name, severity)
    if not fault.name.startswith("LR"):  # its dose goes with the schedule
        assert np.median(state.floor[:, -1]) == pytest.approx(fitted.floor, rel=0.35, abs=1e-6)
        assert np.median(state.jump[:, 201]) == pytest.approx(fitted.jump, rel=0.35, abs=1e-6)
        assert np.allclose(state.wobble[:, 201:], fitted.wobble)
        assert state.collapsed[:, 250].mean() == pytest.approx(fitted.collapse_share, abs=0.12)
    assert not state.jump[:, :201].any() and not state.jump[:, 202:].any()


@pytest.mark.parametrize("name", ["DATA_CORRUPTION", "SILENT_DATA_CORRUPTION"])
def test_of_wrong_numbers_hardware_and_time_show_nothing(name: str) -> None:
    runs = pair(name, "high")
    assert np.array_equal(runs.faulty.step_time_s, runs.control.step_time_s)
    assert runs.faulty.hardware == runs.control.hardware


@pytest.mark.parametrize("name", ["GQA_MISMATCH", "RMS_NORM_ERROR"])
def test_the_authors_flag_is_up_from_the_onset_on(name: str) -> None:
    reported = disturbed(make_fault(name)).reported
    assert (reported[f"force_{name.lower()}"][:, 200:] == 1.0).all()
    assert [flag for flag in reported if flag.startswith("force_") and reported[flag].any()] == [
        f"force_{name.lower()}"
    ]


# --- bugs, which are not simulated -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_cannot_be_simulated_and_says_so_in_a_line(name: str) -> None:
    for fault in (name, f"LR_SPIKE+{name}"):
        with pytest.raises(UserError, match=f"fault {name} is brought upon live runs alone") as caught:
            RunSpec(architecture=MOE, fault=fault)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=f"{name} is a bug"):
        make_fault(name).simulate(undisturbed(), between(5, 800, 201), RunStreams(tuple(range(5)), 800))


def test_exactly_the_bugs_are_not_simulated() -> None:
    assert {name for name, fault in FAULTS.items() if issubclass(fault, Bug)} == {*BUGS}
    assert {name for name, fault in FAULTS.items() if not fault.simulated} == {*BUGS}


# --- making faults ---------------------------------------------------------------------------------------------------


def test_all_twelve_are_there() -> None:
    assert set(NAMES) >= {
        "LR_SPIKE", "GRADIENT_EXPLOSION", "DATA_CORRUPTION", "NODE_FAILURE", "NETWORK_DEGRADATION",
        "SILENT_DATA_CORRUPTION", "GQA_MISMATCH", "RMS_NORM_ERROR", "LOW_PRECISION_ATTENTION", "EXPERT_FAILURE",
        "ROUTER_IMBALANCE", "LARGE_LR",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("lr_spike", "LR_SPIKE"), ("NODE_FAILRE", "NODE_FAILURE"), ("LR_SPIKE+ROUTER", "ROUTER_IMBALANCE")],
)
def test_an_unknown_fault_is_answered_with_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"did you mean '{meant}'"):
        make_fault(typed)


def test_an_unknown_severity_is_the_users_error() -> None:
    with pytest.raises(UserError, match="unknown severity 'hgih'; choose one of low, medium, high"):
        make_fault("LR_SPIKE", "hgih")


@pytest.mark.parametrize(("name", "parameter", "choices"), CHOICES)
def test_a_value_that_a_parameter_cannot_have_is_the_users_error(
    name: str, parameter: str, choices: tuple[str, ...]
) -> None:
    with pytest.raises(UserError, match=f"{name} has no {parameter}=odd; choose one of {', '.join(choices)}"):
        make_fault(name, **{parameter: "odd"})


def test_parameters_go_over_those_of_the_severity() -> None:
    assert make_fault("LR_SPIKE", "high", factor=2.0).parameters == {"duration_steps": 20, "factor": 2.0}


@pytest.mark.parametrize("name", [name for name in NAMES if FAULTS[name].needs_experts])
@pytest.mark.parametrize("architecture", ["llama-3-8b", "mistral-7b"])
def test_a_fault_of_experts_on_a_dense_model_is_the_users_error(name: str, architecture: str) -> None:
    for fault in (name, f"LR_SPIKE+{name}"):
        with pytest.raises(UserError, match=f"needs a mixture-of-experts model and {architecture} is dense"):
            RunSpec(architecture=architecture, fault=fault)
        with pytest.raises(UserError, match="choose --architecture gpt-4-moe"):
            check_fault_fits(fault, ARCHITECTURES[architecture])
    check_fault_fits(name, ARCHITECTURES[MOE])


def test_exactly_the_faults_of_experts_need_experts() -> None:
    assert {name for name in NAMES if FAULTS[name].needs_experts} == {"EXPERT_FAILURE", "ROUTER_IMBALANCE"}


def test_a_name_becomes_part_of_a_file_name() -> None:
    assert file_name_part("LR_SPIKE+LOW_PRECISION_ATTENTION") == "lr_spike-low_precision_attention"


# --- combinations ----------------------------------------------------------------------------------------------------


def test_a_combination_runs_all_its_parts() -> None:
    spike, network = pair("LR_SPIKE", "low"), pair("NETWORK_DEGRADATION", "low")
    both = pair("LR_SPIKE+NETWORK_DEGRADATION", "low")
    assert np.array_equal(both.faulty.learning_rate, spike.faulty.learning_rate)
    assert np.array_equal(both.faulty.held_out, spike.faulty.held_out)
    assert np.array_equal(both.faulty.step_time_s, network.faulty.step_time_s)
    assert both.faulty.hardware == network.faulty.hardware


def test_the_order_of_the_parts_changes_the_name_only() -> None:
    one, other = pair("LR_SPIKE+DATA_CORRUPTION", "low"), pair("DATA_CORRUPTION+LR_SPIKE", "low")
    for key in (*MEASURED, "held_out"):
        assert np.array_equal(getattr(one.faulty, key), getattr(other.faulty, key), equal_nan=True), key


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_adds_to_what_another_has_done(name: str) -> None:
    for other in NAMES:
        ends = []
        for order in ((name, other), (other, name)):
            state, streams = undisturbed(runs=2), RunStreams((0, 1), 800)
            for part in order:
                fault = make_fault(part)
                active = between(2, 800, 201, fault.duration_steps)
                fault.simulate(state, active, streams.within(f"fault {part}"))
            ends.append(_arrays(state))
        for key, array in ends[0].items():
            if key != "floor_rate":  # one pace towards one floor: that of the part named last
                assert np.allclose(array, ends[1][key], rtol=1e-5, atol=0.0), (name, other, key)


def test_a_combination_says_what_it_is_made_of() -> None:
    fault = make_fault("LR_SPIKE + DATA_CORRUPTION", "high")
    assert fault.label == "LR_SPIKE+DATA_CORRUPTION"
    assert [part.name for part in fault.parts] == ["LR_SPIKE", "DATA_CORRUPTION"]
    assert json.loads(json.dumps(fault.parameters)) == {
        "LR_SPIKE": make_fault("LR_SPIKE", "high").parameters,
        "DATA_CORRUPTION": make_fault("DATA_CORRUPTION", "high").parameters,
    }
    with pytest.raises(TypeError, match="part by part"):
        fault.simulate(undisturbed(), between(5, 800, 201), RunStreams(tuple(range(5)), 800))


def test_a_fault_cannot_be_combined_with_itself() -> None:
    with pytest.raises(UserError, match="names a fault twice"):
        make_fault("LR_SPIKE+DATA_CORRUPTION+LR_SPIKE")


def _yields(fault: Fault, training: object) -> Iterator[None]:
    yield


def _returns(fault: Fault, training: object) -> None:
    return


@pytest.mark.parametrize("inject", [_yields, _returns, contextmanager(_returns)])  # type: ignore[arg-type]
def test_an_inject_that_gives_no_context_is_told_alone_and_in_a_combination(
    inject: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Stall, "inject", inject)
    for fault in (_Stall(), CombinedFault(members=(_Stall(),))):
        with (
            pytest.raises(PluginError, match=r"inject of fault .* gives no context; is @contextmanager missing"),
            injected(fault, SimpleNamespace()),  # type: ignore[arg-type]
        ):
            pass


def test_a_combination_is_cleared_when_its_last_part_is() -> None:
    specs = [
        RunSpec(architecture=MOE, fault=fault, severity="low", onset=100, steps=400)
        for fault in ("LR_SPIKE", "LR_SPIKE+GRADIENT_EXPLOSION", "LR_SPIKE+DATA_CORRUPTION")
    ]
    assert TrainingSimulator().simulate(specs).cleared == [120, 200, None]


# --- registration ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Stall(Fault):
    """Every step waits."""

    source = "a test"
    seconds: float = 100.0

    def simulate(self, state: RunProcesses, active: np.ndarray, rng: RunStreams) -> None:
        state.stall_s += active * self.seconds


def test_a_users_own_fault_runs_like_any_other(clean_registries: None) -> None:
    register_fault("STALL")(_Stall)
    (log,) = run_batch([RunSpec(architecture="llama-3-8b", fault="STALL", onset=200, steps=400)])
    times = {record["step"]: record["step_time_s"] for record in records_of(log.content)}
    assert max(times[step] for step in range(10, 200, 10)) < 50.0
    assert min(times[step] for step in range(210, 401, 10)) > 100.0


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (
            "state.kick = state.kick + 0.1 * active",
            r"puts a new value in the place of state\.kick, .* state\.kick \+= …",
        ),
        (
            "state.reported['failed_experts'] = 1.0 * active",
            r"puts a new value in the place of state\.reported\['failed_experts'\]",
        ),
        ("state.events[1] = []", r"puts a new value in the place of state\.events\[1\]"),
        ("state.stal_s = 0.1 * active", r"sets state\.stal_s, which is not a process; did you mean stall_s\?"),
        ("state.kick += np.nan * active", r"makes state\.kick nan at step \d+; it must be finite"),
        ("state.stall_s[:, 299:] = np.inf", r"makes state\.stall_s inf at step 300; it must be finite"),
        ("state.stall_s -= 1e9 * active", r"makes state\.stall_s -1000000000\.0 at step \d+; it must be at least 0"),
        ("state.kick -= 1.0 * active", r"makes state\.kick -\S+ at step \d+; it must be at least 0"),
        ("state.kick += 0.1", r"changes state\.kick before its onset, where a run is healthy; change it only where"),
        ("state.floor[0] += 0.1", r"changes state\.floor before its onset"),
        ("state.collapsed[:, 20] = True", r"changes state\.collapsed before its onset"),
        ("state.reported['failed_experts'] += 1.0", r"changes state\.reported\['failed_experts'\] before its onset"),
        ("state.lose_worker(np.array([90, 20]), np.array([1, 1]))", r"changes state\.worker_lost_at before its onset"),
        ("state.report_events(~active, 'gpu', np.zeros(2, int), 'fatal')", r"changes state\.events before its onset"),
    ],
)
def test_what_a_fault_writes_past_the_simulation_is_told(written: str, told: str, clean_registries: None) -> None:
    @register_fault("PAST")
    @dataclass(frozen=True, kw_only=True)
    class Past(_Stall):
        """Writes something else."""

        def simulate(self, state: RunProcesses, active: np.ndarray, rng: RunStreams) -> None:
            exec(written, {"state": state, "active": active, "np": np})

    specs = [RunSpec(architecture="llama-3-8b", fault="PAST", seed=seed, steps=400) for seed in range(2)]
    with pytest.raises(UserError, match=f"^fault PAST {told}") as caught:
        run_batch(specs)
    assert "\n" not in str(caught.value)


def test_a_fault_without_severities_of_its_own_has_three_equal_ones(clean_registries: None) -> None:
    register_fault("STALL")(_Stall)
    assert {make_fault("STALL", severity) for severity in SEVERITIES} == {_Stall()}


def test_a_fault_without_the_dataclass_decorator_is_refused(clean_registries: None) -> None:
    class Bare(_Stall):
        """Its duration would be silently ignored."""

        duration_steps: int = 20

    with pytest.raises(TypeError, match="Bare must be a dataclass; put @dataclass"):
        register_fault("BARE")(Bare)
    assert "BARE" not in FAULTS


@pytest.mark.parametrize(
    ("severities", "message"),
    [
        ({"extreme": {}}, "severity 'extreme' is none of low, medium, high"),
        ({"low": {"second": 1.0}}, r"sets unknown parameters \['second'\]"),
    ],
)
def test_severities_that_make_no_sense_are_refused(severities: dict, message: str, clean_registries: None) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Odd(_Stall):
        """Odd."""

    Odd.severities = severities
    with pytest.raises(ValueError, match=message):
        register_fault("ODD")(Odd)
    assert "ODD" not in FAULTS


@pytest.mark.parametrize("name", ["A+B", "LR_SPIKE", "a b"])
def test_a_name_that_is_taken_or_ambiguous_is_refused(name: str, clean_registries: None) -> None:
    with pytest.raises(ValueError, match=r"already registered|must consist of"):
        register_fault(name)(_Stall)


def test_the_earliest_loss_of_a_worker_counts() -> None:
    state = undisturbed(runs=3)
    state.lose_worker(np.array([50, NEVER, 70]), np.array([1, 2, 3]))
    state.lose_worker(np.array([60, 40, 10]), np.array([4, 5, 6]))
    assert state.worker_lost_at.tolist() == [50, 40, 10]
    assert state.lost_worker.tolist() == [1, 5, 6]
