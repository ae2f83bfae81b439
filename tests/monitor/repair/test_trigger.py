"""What makes a step suspicious."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from rmetric.monitor.repair import Suspicion
from rmetric.monitor.step_numbers import StepNumbers
from rmetric.state import restore, state_of

NAMES = ("a", "b", "c")


def step_numbers(
    loss: float = 3.0, norms: tuple[float, ...] = (1.0, 2.0, 3.0), parts: tuple[float, ...] = ()
) -> StepNumbers:
    present = [index for index, norm in enumerate(norms) if not math.isnan(norm)]
    return StepNumbers(present, np.array([norms[i] for i in present]), np.array(parts), {"training_loss": loss}, NAMES)


def trained(steps: int = 200, *, spread: float = 0.1, parts: bool = False, seed: int = 0) -> Suspicion:
    suspicion = Suspicion(vocabulary=50)
    suspicion.watch(NAMES)
    for item in healthy(steps, spread=spread, parts=parts, seed=seed):
        suspicion.accept(item)
    return suspicion


def healthy(steps: int, *, spread: float = 0.1, parts: bool = False, seed: int = 0) -> list[StepNumbers]:
    rng = np.random.default_rng(seed)
    factors = np.exp(rng.normal(0.0, spread, (steps, 5)))
    return [
        step_numbers(3.0 * f[0], tuple(np.array([1.0, 2.0, 3.0]) * f[1:4]), tuple(f[3:]) if parts else ())
        for f in factors
    ]


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (step_numbers(loss=math.nan), "the loss is not finite"),
        (step_numbers(loss=math.inf), "the loss is not finite"),
        (step_numbers(norms=(1.0, math.inf, 3.0)), "a gradient is not finite"),
        (step_numbers(parts=(1.0, math.inf)), "a gradient is not finite"),
        (step_numbers(norms=(0.0, 0.0, 0.0)), "the gradient is exactly zero"),
        (step_numbers(loss=math.log(50)), "the loss is exactly ln(vocabulary)"),
    ],
)
def test_numbers_that_no_healthy_step_has_are_certain(item: StepNumbers, reason: str) -> None:
    alarm = trained().judge(item)
    assert alarm.certain
    assert alarm.reasons == (reason,)


def test_what_a_gradient_scaler_leaves_out_is_no_sign_until_its_patience_is_over() -> None:
    suspicion = Suspicion(vocabulary=50, patience=2)
    overflow, broken_loss = (step_numbers(loss, (1.0, math.inf, 3.0)) for loss in (3.0, math.nan))
    found = []
    for item in [overflow, *healthy(1), overflow, overflow, overflow, *healthy(1), broken_loss]:
        alarm = suspicion.judge(item)
        found.append((alarm.certain, alarm.left_to_scaler) if alarm else ())
        suspicion.accept(item)
    scalers, certain = (False, True), (True, False)
    assert found == [scalers, (), scalers, scalers, certain, (), certain]


def test_a_new_model_may_have_a_loss_of_ln_vocabulary() -> None:
    suspicion = Suspicion(vocabulary=50)
    suspicion.watch(NAMES)
    assert suspicion.judge(step_numbers(loss=math.log(50))) is None


def test_a_broken_tensor_is_named() -> None:
    alarm = trained().judge(step_numbers(norms=(1.0, math.inf, 3.0)))
    assert alarm.tensors == ("b",)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (step_numbers(norms=(1.0, 20.0, 3.0)), "unusual gradient norm"),
        (step_numbers(norms=(1.0, 2e-4, 3.0)), "unusual gradient norm"),
        (step_numbers(norms=(1.0, 0.0, 3.0)), "unusual gradient norm"),
        (step_numbers(norms=(1.0, 2.0, 300.0)), "the gradient norm is unusual"),
        (step_numbers(loss=9.0), "the loss is unusually high"),
        (step_numbers(parts=(1.0, 30.0)), "the gradient norm of a worker is unusual"),
    ],
)
def test_what_is_far_from_the_last_steps_is_unusual(item: StepNumbers, reason: str) -> None:
    alarm = trained(parts=True).judge(item)
    assert not alarm.certain
    assert any(reason in text for text in alarm.reasons)


def test_a_low_loss_is_no_reason_for_suspicion() -> None:
    assert trained().judge(step_numbers(loss=0.5)) is None


def test_a_step_with_nothing_left_to_learn_is_no_reason_for_suspicion() -> None:
    nothing = (0.0, 0.0, 0.0)
    assert trained().judge(step_numbers(loss=0.0, norms=nothing, parts=(0.0, 0.0))) is None
    assert trained().judge(step_numbers(loss=0.0, norms=nothing, parts=(0.0, math.nan))) is not None


def test_nothing_is_unusual_in_the_first_steps() -> None:
    assert trained(15).judge(step_numbers(norms=(1e6, 1e6, 1e6))) is None
    assert trained(17).judge(step_numbers(norms=(1e6, 1e6, 1e6))) is not None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_healthy_steps_with_heavy_tails_are_hardly_ever_suspicious(seed: int) -> None:
    suspicion, alarms = trained(0), 0
    for scale, item in zip(np.random.default_rng(seed).pareto(3.0, 4000) + 1.0, healthy(4000, seed=seed), strict=True):
        norms = tuple(item.norms * scale)
        heavy = step_numbers(item.scalars["training_loss"], norms)
        alarms += suspicion.judge(heavy) is not None
        suspicion.accept(heavy)
    assert alarms <= 0.003 * 4000


def test_an_outlier_hardly_moves_what_is_usual() -> None:
    suspicion = trained()
    before = suspicion.usual_norm
    suspicion.accept(step_numbers(norms=(1e6, 1e6, 1e6)))
    assert suspicion.usual_norm == pytest.approx(before, rel=0.05)


def test_what_was_unusual_and_sound_raises_the_bar_for_its_like_only() -> None:
    suspicion = trained()
    item = step_numbers(norms=(1.0, 20.0, 3.0))
    suspicion.accept(item)
    assert suspicion.judge(item) is None
    assert suspicion.judge(step_numbers(norms=(20.0, 2.0, 3.0))) is not None


def test_a_burst_that_nobody_found_sound_does_not_hide_itself() -> None:
    suspicion = trained()
    burst = step_numbers(norms=(50.0, 100.0, 150.0))
    for _ in range(10):
        assert suspicion.judge(burst) is not None
        suspicion.accept(burst, sound=False)


def test_what_raised_the_bar_is_unusual_by_the_factors_of_before() -> None:
    suspicion = trained()
    before, item = suspicion.factors, step_numbers(norms=(1.0, 20.0, 3.0))
    suspicion.accept(item)
    assert suspicion.judge(item) is None
    assert suspicion.judge(item, before) is not None
    with_new = StepNumbers([0, 1, 2, 3], np.array([1.0, 20.0, 3.0, 5.0]), np.array([]), item.scalars, (*NAMES, "d"))
    assert suspicion.judge(with_new, before) is not None


def test_a_tensor_without_a_gradient_is_not_unusual() -> None:
    suspicion = trained()
    assert suspicion.judge(step_numbers(norms=(1.0, math.nan, 3.0))) is None
    suspicion.accept(step_numbers(norms=(1.0, math.nan, 3.0)))
    assert suspicion.judge(step_numbers(norms=(1.0, 20.0, 3.0))) is not None


def test_a_tensor_whose_gradient_is_often_zero_is_not_unusual() -> None:
    suspicion = trained()
    suspicion.accept(step_numbers(norms=(1.0, 0.0, 3.0)))
    assert suspicion.judge(step_numbers(norms=(1.0, 0.0, 3.0))) is None


def test_state_survives_json() -> None:
    suspicion, other = trained(), trained(0)
    restore(other, json.loads(json.dumps(state_of(suspicion))))
    item = step_numbers(norms=(1.0, 20.0, 3.0))
    assert other.judge(item) == suspicion.judge(item) is not None
    assert other.usual_norm == suspicion.usual_norm
