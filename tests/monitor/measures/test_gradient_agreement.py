"""Agreement of a gradient with those before: by hand, on a sample, for sparse and missing ones, over a resume."""

import math

import numpy as np
import pytest
import torch

from rmetric.monitor.measures.gradient_agreement import MEMORY, GradientAgreement
from rmetric.monitor.parameters import ModelParameters


def parameters_of(*sizes: int) -> tuple[torch.nn.ParameterList, ModelParameters]:
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(size)) for size in sizes])
    return model, ModelParameters(model)


def give(model: torch.nn.ParameterList, *gradients: list[float] | None) -> None:
    for item, gradient in zip(model, gradients, strict=True):
        item.grad = None if gradient is None else torch.tensor(gradient)


def value(agreement: GradientAgreement) -> float:
    return float(agreement.measure())


def test_it_is_the_cosine_with_the_mean_direction_so_far() -> None:
    model, parameters = parameters_of(3, 2)
    agreement = GradientAgreement(parameters)
    rng = np.random.default_rng(0)
    mean = np.zeros(0)
    for step in range(20):
        gradient = rng.normal(1.0, 1.0, 5) * 10.0 ** rng.uniform(-3.0, 3.0)
        give(model, gradient[:3].tolist(), gradient[3:].tolist())
        direction = gradient / np.linalg.norm(gradient)
        if step == 0:
            assert agreement.measure() is None
            mean = direction
            continue
        assert value(agreement) == pytest.approx(direction @ mean / np.linalg.norm(mean), abs=1e-6)
        mean = MEMORY * mean + (1.0 - MEMORY) * direction


@pytest.mark.parametrize(("gradient", "expected"), [([2.0, -2.0], 1.0), ([-3.0, 3.0], -1.0), ([1.0, 1.0], 0.0)])
def test_it_is_one_for_the_same_direction_and_minus_one_for_the_opposite(
    gradient: list[float], expected: float
) -> None:
    model, parameters = parameters_of(2)
    agreement = GradientAgreement(parameters)
    give(model, [1.0, -1.0])
    agreement.measure()
    give(model, gradient)
    assert value(agreement) == pytest.approx(expected, abs=1e-6)


def test_gradients_whose_squares_underflow_have_no_direction_and_spoil_none() -> None:
    model, parameters = parameters_of(50)
    agreement, rng = GradientAgreement(parameters), np.random.default_rng(0)
    give(model, rng.normal(1.0, 0.1, 50).tolist())
    agreement.measure()
    for size in (1e-17, 1e-19, 1e-21, 1e-23, 1e-30, 1e-44, 1.0):
        give(model, (size * rng.normal(1.0, 0.1, 50)).tolist())
        expected = 0.99 if size > 1e-18 else math.nan
        assert value(agreement) == pytest.approx(expected, abs=0.01, nan_ok=True), size


def test_after_a_thousand_gradients_of_nothing_there_is_no_direction_to_agree_with() -> None:
    model, parameters = parameters_of(2)
    agreement = GradientAgreement(parameters)
    give(model, [1.0, 1.0])
    agreement.measure()
    give(model, [0.0, 0.0])
    for _ in range(1_000):
        assert math.isnan(value(agreement))
    give(model, [1.0, 0.0])
    assert math.isnan(value(agreement))
    assert value(agreement) == pytest.approx(1.0)


def test_gradients_of_noise_agree_by_as_little_as_their_number_allows() -> None:
    model, parameters = parameters_of(20_000)
    agreement, generator = GradientAgreement(parameters, entries=2_000), torch.Generator().manual_seed(0)
    model[0].grad = torch.randn(20_000, generator=generator)
    agreement.measure()
    found = []
    for _ in range(50):
        model[0].grad = torch.randn(20_000, generator=generator)
        found.append(value(agreement))
    assert abs(np.mean(found)) < 0.01
    assert 0.5 < np.std(found) * math.sqrt(2_000) < 2.0


def test_one_enormous_gradient_does_not_fill_the_memory() -> None:
    model, parameters = parameters_of(2)
    agreement = GradientAgreement(parameters)
    for gradient in ([1.0, 0.0], [0.0, 1e12], [1.0, 0.0], [1.0, 0.0]):
        give(model, gradient)
        agreement.measure()
    assert value(agreement) > 0.9


def test_a_missing_a_sparse_and_a_broken_gradient_count_for_nothing() -> None:
    model, parameters = parameters_of(2, 2, 2, 2)
    agreement = GradientAgreement(parameters)
    give(model, [1.0, 1.0], None, [0.0, 0.0], [math.nan, math.inf])
    model[1].grad = torch.tensor([-1.0, 0.0]).to_sparse()
    assert agreement.measure() is None
    assert value(agreement) == pytest.approx(1.0)


def test_without_a_gradient_there_is_nothing_to_measure() -> None:
    model, parameters = parameters_of(2)
    agreement = GradientAgreement(parameters)
    assert agreement.measure() is None
    give(model, [1.0, 0.0])
    assert agreement.measure() is None
    give(model, [0.0, 0.0])
    assert math.isnan(value(agreement))
    give(model, [1.0, 0.0])
    assert value(agreement) == 1.0


def test_it_begins_anew_with_other_parameters() -> None:
    model, parameters = parameters_of(2)
    agreement = GradientAgreement(parameters)
    give(model, [1.0, 1.0])
    agreement.measure()
    model.append(torch.nn.Parameter(torch.zeros(2)))
    parameters.refresh()
    give(model, [1.0, 1.0], [1.0, 1.0])
    assert agreement.measure() is None
    assert value(agreement) == pytest.approx(1.0)


def test_a_resumed_one_goes_on_with_the_mean() -> None:
    model, parameters = parameters_of(3)
    agreement, resumed = GradientAgreement(parameters), GradientAgreement(parameters)
    for gradient in ([1.0, 1.0, 1.0], [1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]):
        give(model, gradient)
        agreement.measure()
    resumed.load_state_dict(agreement.state_dict())
    give(model, [1.0, 1.0, -1.0])
    assert value(resumed) == value(agreement)


@pytest.mark.parametrize("sizes", [(4,), (4, 3)])
def test_gradients_are_left_as_they_are(sizes: tuple[int, ...]) -> None:
    model, parameters = parameters_of(*sizes)
    agreement = GradientAgreement(parameters)
    for item in model:
        item.grad = torch.full((len(item),), 2.0)
        item.grad[0] = math.inf
    agreement.measure()
    agreement.measure()
    assert all(item.grad.tolist() == [math.inf, *[2.0] * (len(item) - 1)] for item in model)
