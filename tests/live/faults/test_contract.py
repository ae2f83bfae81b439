"""What every registered fault promises when it is brought upon a live run, whoever wrote it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from rmetric.errors import UserError
from rmetric.faults import FAULTS, SEVERITIES, make_fault
from rmetric.live.run import LiveRun
from tests.live.faults.common import Notes, same_bits, surface, trained

MAKE = Callable[..., LiveRun]
SEVERAL_PROCESSES = {"WORKERS_DRIFT"}
"""Faults of a model that several processes train."""
OF_TEXT = {"TOKENIZER_MISMATCH", "EMBEDDING_CORRUPTED"}
"""Bugs of tokens and their embeddings."""
NAMES = [name for name in FAULTS if name not in SEVERAL_PROCESSES]
BUGS = [name for name in NAMES if not FAULTS[name].simulated]
EVERY = [
    pytest.param(name, severity, marks=[] if severity == "high" else pytest.mark.long)
    for name in NAMES
    for severity in SEVERITIES
]
LATE = {"MISSING_ZERO_GRAD", "SAME_BATCH_FOR_EVER", "FEW_BATCHES", "STALE_GRADIENTS", "STALE_WEIGHTS"}
"""Faults that need a step before they show in the weights."""
TIMING_ONLY = {"NETWORK_DEGRADATION"}
"""Faults that change no number of the training."""
LOSES_A_WORKER = {"NODE_FAILURE"}
"""Faults that leave a run with fewer workers."""
HEALTHY_STEPS, FAULTY_STEPS = 2, 2


@pytest.fixture(autouse=True)
def _nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def _model(name: str) -> str:
    if name in BUGS:
        return "tiny-llama" if name in OF_TEXT else "classifier"
    return "tiny-moe" if FAULTS[name].needs_experts else "tiny-llama"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "severity"), EVERY)
def test_a_run_that_is_left_has_nothing_of_the_fault_on_it(
    make_run: MAKE, twin_of: MAKE, name: str, severity: str
) -> None:
    """Neither a hook nor a changed attribute; it goes on exactly as a run that starts from the same state."""
    run = trained(make_run(_model(name)), HEALTHY_STEPS)
    before, workers = surface(run), list(run.active_workers)
    with make_fault(name, severity).inject(run):
        trained(run, FAULTY_STEPS)
    assert surface(run) == before
    assert not any(run.hooks.values())
    assert run.learning_rate_factor == 1.0
    if name not in LOSES_A_WORKER:
        assert run.active_workers == workers
    heir = twin_of(run, _model(name))
    assert same_bits(trained(run, 1).state_dict(), trained(heir, 1).state_dict())


@pytest.fixture(scope="module")
def healthy_states() -> dict[tuple[str, int], dict[str, Any]]:
    """States of runs in which no fault was ever on, by model and step: they are the same for every fault."""
    return {}


@pytest.fixture
def healthy(make_run: MAKE, healthy_states: dict[tuple[str, int], dict[str, Any]]) -> Callable[[str, int], Any]:
    """``healthy(model, steps)``: the state of a run of so many steps in which no fault was ever on."""

    def state(model: str, steps: int) -> dict[str, Any]:
        if (model, steps) not in healthy_states:
            healthy_states[model, steps] = trained(make_run(model), steps).state_dict()
        return healthy_states[model, steps]

    return state


@pytest.mark.slow
@pytest.mark.parametrize(("name", "severity"), EVERY)
def test_the_twin_is_untouched(
    make_run: MAKE, twin_of: MAKE, healthy: Callable[[str, int], Any], name: str, severity: str
) -> None:
    """Even one that trains in the same process while the fault is on."""
    run = trained(make_run(_model(name)), HEALTHY_STEPS)
    twin = twin_of(run, _model(name))
    with make_fault(name, severity).inject(run):
        for _ in range(FAULTY_STEPS):
            trained(run, 1)
            trained(twin, 1)
    assert same_bits(twin.state_dict(), healthy(_model(name), HEALTHY_STEPS + FAULTY_STEPS))
    if name in TIMING_ONLY:
        assert same_bits(run.state_dict(), twin.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_fault_does_something_to_the_training_or_is_known_not_to(make_run: MAKE, name: str) -> None:
    ailing = {"incubation_steps": 2.0} if name in LOSES_A_WORKER else {}
    steps = 15 if name in LOSES_A_WORKER else FAULTY_STEPS + 1  # two batches in turn are new ones until then
    run = make_run(_model(name))
    with make_fault(name, "high", **ailing).inject(trained(run, HEALTHY_STEPS)):
        trained(run, steps)
    calm = trained(make_run(_model(name)), HEALTHY_STEPS + steps)
    assert same_bits(run.model.state_dict(), calm.model.state_dict()) == (name in TIMING_ONLY)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "severity"), EVERY)
def test_the_same_seed_gives_the_same_bits(make_run: MAKE, name: str, severity: str) -> None:
    states, told = [], []
    for _ in range(2):
        run = trained(make_run(_model(name), seed=5), HEALTHY_STEPS)
        notes = Notes(run)
        with make_fault(name, severity).inject(run):
            trained(run, FAULTY_STEPS)
        states.append(run.state_dict())
        told.append(notes.told)
    assert same_bits(*states)
    assert same_bits(*told)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_what_is_noted_can_be_written_down(make_run: MAKE, name: str) -> None:
    """Plain values, and steps at which the fault was on; a number need not be finite."""
    run = trained(make_run(_model(name)), HEALTHY_STEPS)
    notes = Notes(run)
    with make_fault(name, "high").inject(run):
        trained(run, FAULTY_STEPS)
    for note in notes.told:
        assert json.loads(json.dumps(note)).keys() == note.keys()
        assert HEALTHY_STEPS < note.get("step", run.step) <= run.step


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("moment", ["between steps", "within a step"])
def test_it_is_gone_after_an_exception_too(make_run: MAKE, name: str, moment: str) -> None:
    run = trained(make_run(_model(name)), HEALTHY_STEPS)
    before = surface(run)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), make_fault(name, "high").inject(run):
        trained(run, 1)
        if moment == "within a step":
            with run.at("micro_batch", interrupt):
                trained(run, 1)
        interrupt()
    assert surface(run) == before


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("tiny-moe", [name for name in NAMES if FAULTS[name].simulated and name not in LOSES_A_WORKER]),
        ("classifier", [name for name in BUGS if name not in {"NO_CLIPPING", *OF_TEXT}]),  # the opposite of another one
    ],
)
def test_a_combination_is_all_its_parts_and_then_gone(make_run: MAKE, model: str, names: list[str]) -> None:
    run = trained(make_run(model), HEALTHY_STEPS)
    before = surface(run)
    with make_fault("+".join(names), "low").inject(run):
        trained(run, 2)
        assert surface(run) != before
    assert surface(run) == before


@pytest.mark.parametrize("name", [name for name in FAULTS if FAULTS[name].needs_experts])
def test_a_fault_of_experts_on_a_dense_model_is_the_users_error(make_run: MAKE, name: str) -> None:
    run = make_run("tiny-llama")
    before = surface(run)
    refused = pytest.raises(UserError, match=f"fault {name} needs a mixture-of-experts model")
    with refused as caught, make_fault(name).inject(run):
        pass
    assert "\n" not in str(caught.value)
    assert surface(run) == before


@pytest.mark.parametrize("model", ["tiny-mistral", "tiny-qwen"])
def test_every_fault_of_dense_models_fits_every_family(make_run: MAKE, model: str) -> None:
    for name in FAULTS:
        if FAULTS[name].simulated and not FAULTS[name].needs_experts:
            with make_fault(name, "low").inject(run := trained(make_run(model), 1)):
                trained(run, 1)
            assert run.step == 2


NOT_OF_TEXT = {
    "DROPOUT_STATE", "EVAL_MODE_IN_TRAINING", "NORM_STATISTICS_FROZEN", "WRONG_NORMALISATION", "SHUFFLING_OFF",
    "SCHEDULE_STEPPED_TWICE", "DROPOUT_TOO_HIGH", "INPUTS_ZEROED", "TARGET_LEAKS",
}  # fmt: skip
"""Bugs that a language model cannot have without dropout, batch norm, numbers as inputs, classes and a schedule."""


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_a_language_model_has_a_bug_or_says_no(make_run: MAKE, twin_of: MAKE, name: str) -> None:
    run = trained(make_run("tiny-llama"), HEALTHY_STEPS)
    before = surface(run)
    if name in NOT_OF_TEXT:
        with pytest.raises(UserError, match=name) as caught, make_fault(name).inject(run):
            pass
        assert "\n" not in str(caught.value)
    else:
        with make_fault(name).inject(run):
            trained(run, FAULTY_STEPS)
    assert surface(run) == before
    heir = twin_of(run, "tiny-llama")
    assert same_bits(trained(run, 1).state_dict(), trained(heir, 1).state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_whether_it_is_entered_in_the_step_before_or_in_its_first(make_run: MAKE, name: str) -> None:
    """The first disturbed step is the same, and so is the first note."""
    run = trained(make_run(_model(name)), HEALTHY_STEPS)
    notes = Notes(run)
    run.step += 1
    with make_fault(name, "high").inject(run):
        run.step -= 1
        trained(run, 1)
    calm = trained(make_run(_model(name)), HEALTHY_STEPS + 1)
    if name not in LOSES_A_WORKER | LATE:
        assert same_bits(run.model.state_dict(), calm.model.state_dict()) == (name in TIMING_ONLY)
    assert {note["step"] for note in notes.told if "step" in note} <= {HEALTHY_STEPS + 1}
