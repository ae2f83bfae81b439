"""Cosines of successive updates and of micro-batches' gradients, worked out by hand in double precision."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rmetric.errors import UserError
from rmetric.monitor.mechanism import GradientAlignment, UpdateAlignment
from rmetric.monitor.mechanism.alignment import cosines_with_the_others
from tests.live.architectures import model_of, tokens
from tests.monitor.mechanism.common import measured, seen_in


def cosine(a: Tensor, b: Tensor) -> float:
    return float(a @ b / a.norm() / b.norm())


def test_the_cosine_of_two_successive_changes() -> None:
    model = nn.Linear(8, 5)
    monitor, points, cosines = UpdateAlignment(model), [], []
    for step in range(4):
        points.append(torch.cat([parameter.detach().double().flatten() for parameter in model.parameters()]))
        seen = measured(monitor)
        cosines.append(None if seen is None else seen.values["update_alignment"])
        generator = torch.Generator().manual_seed(step)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    changes = [later - earlier for earlier, later in itertools.pairwise(points)]
    expected = [cosine(*pair) for pair in itertools.pairwise(changes)]
    assert cosines[:2] == [None, None]
    assert cosines[2:] == pytest.approx(expected, rel=1e-4)


def test_there_and_back_is_minus_one_and_no_change_has_no_direction() -> None:
    model = nn.Linear(8, 5)
    monitor = UpdateAlignment(model)
    for change in (0.0, 0.5, -0.5):
        with torch.no_grad():
            model.weight += change
        seen = measured(monitor)
    assert seen.values["update_alignment"] == pytest.approx(-1.0)
    assert not measured(monitor).values
    with torch.no_grad():
        model.weight[0, 0] = math.nan
    measured(monitor)
    with torch.no_grad():
        model.weight[1, 0] += 1.0
    assert not math.isfinite(measured(monitor).values["update_alignment"])


def test_a_sample_of_a_large_model_tells_the_same() -> None:
    model = nn.Linear(100, 100)
    whole, sample = UpdateAlignment(model), UpdateAlignment(model, entries=1000)
    drift = torch.randn(100, 100, generator=torch.Generator().manual_seed(0))
    for step in range(3):
        with torch.no_grad():
            model.weight += drift + torch.randn(100, 100, generator=torch.Generator().manual_seed(1 + step))
        one, other = measured(whole), measured(sample)
    assert len(sample.state_dict()["before"]) <= 1010
    assert other.values["update_alignment"] == pytest.approx(one.values["update_alignment"], abs=0.1)
    assert one.values["update_alignment"] == pytest.approx(0.5, abs=0.05)


def test_a_resumed_run_goes_on_with_the_same_directions() -> None:
    model = nn.Linear(8, 5)
    monitor, other = UpdateAlignment(model), UpdateAlignment(model)
    for change in (0.0, 0.5, 0.25):
        with torch.no_grad():
            model.weight += change
            model.bias -= change**2
        measured(monitor)
    other.load_state_dict(monitor.state_dict())
    with torch.no_grad():
        model.weight[0] += 1.0
    one, two = measured(monitor), measured(other)
    assert one.values == two.values != {}


def test_a_state_of_another_sample_costs_the_first_two_directions_and_no_more() -> None:
    model = nn.Linear(100, 100)
    monitor, other = UpdateAlignment(model, entries=500), UpdateAlignment(model, entries=1000)
    seen = []
    for step in range(6):
        with torch.no_grad():
            model.weight += 1.0
        if step == 3:
            other.load_state_dict(monitor.state_dict())
        found = measured(other if step >= 3 else monitor)
        seen.append(None if found is None else found.values["update_alignment"])
    assert seen == [None, None, pytest.approx(1.0), None, None, pytest.approx(1.0)]


def test_each_micro_batch_against_the_mean_of_the_others() -> None:
    model = model_of("tiny-llama")
    monitor = GradientAlignment(model, entries=2**20)
    batches = [tokens(2, 12)[:1], tokens(2, 12)[1:], tokens(2, 12)[:1] // 2]
    gradients = []
    for batch in batches:
        model.zero_grad()
        model(batch, labels=batch).loss.backward()
        gradients.append(torch.cat([item.grad.double().flatten() for item in model.parameters()]))
    monitor.arm()
    model.zero_grad()
    for batch in batches:
        loss = model(batch, labels=batch).loss
        torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)  # is no micro-batch
        loss.backward()
    seen = measured(monitor)
    expected = [cosine(gradients[i], sum(gradients) - gradients[i]) for i in range(3)]
    assert seen.details["cosines"] == pytest.approx(np.array(expected), rel=1e-4)
    assert seen.values["gradient_alignment"] == pytest.approx(min(expected), rel=1e-4)
    assert seen.worst["gradient_alignment"] == f"micro-batch {int(np.argmin(expected))}"


def test_one_backward_pass_has_nobody_to_agree_with() -> None:
    model = nn.Linear(4, 3)
    assert seen_in(GradientAlignment(model), lambda: model(torch.ones(2, 4)).sum().backward()) is None


def test_a_computation_that_is_done_once_more_counts_once() -> None:
    model = nn.Linear(4, 3)
    monitor = GradientAlignment(model)
    monitor.arm()
    for times in (1.0, 2.0):
        monitor.restart()
        for sign in (1.0, -1.0):
            (times * sign * model(torch.ones(2, 4)).sum()).backward()
    seen = measured(monitor)
    assert seen.details["cosines"].tolist() == pytest.approx([-1.0, -1.0])


def test_inner_products_that_are_not_finite_and_gradients_of_zero() -> None:
    gram = np.array([[1.0, math.nan, 0.6], [math.nan, math.inf, math.nan], [0.6, math.nan, 1.0]])
    assert cosines_with_the_others(gram).tolist() == pytest.approx([0.6, math.inf, 0.6])
    assert np.isnan(cosines_with_the_others(np.array([[0.0, 0.0], [0.0, 1.0]]))).all()
    assert cosines_with_the_others(np.full((3, 3), 1e-30)).tolist() == pytest.approx([1.0] * 3)


def test_a_worker_whose_gradient_is_not_finite_is_named() -> None:
    model = nn.Linear(4, 3)
    monitor = GradientAlignment(model)
    monitor.arm()
    for scale in (1.0, math.inf, 1e-30, 2e-30):
        (model(torch.ones(2, 4)).sum() * scale).backward()
    seen = measured(monitor)
    assert seen.values["gradient_alignment"] == math.inf
    assert seen.worst["gradient_alignment"] == "micro-batch 1"
    assert seen.details["cosines"][[0, 2, 3]].tolist() == pytest.approx([1.0] * 3)


def test_hooks_of_parameters_are_given_back() -> None:
    model = nn.Linear(4, 3)
    monitor = GradientAlignment(model)
    assert not model.weight._backward_hooks
    monitor.arm()
    assert model.weight._backward_hooks
    monitor.disarm()
    monitor.disarm()
    assert not model.weight._backward_hooks and not model.bias._backward_hooks


def test_a_layer_that_is_frozen_has_no_hook_and_the_others_are_compared() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
    monitor = GradientAlignment(model)
    model[0].requires_grad_(False)
    monitor.arm()
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()
    assert measured(monitor).values["gradient_alignment"] == pytest.approx(1.0)


@pytest.mark.parametrize("kind", [UpdateAlignment, GradientAlignment])
def test_a_model_without_trained_parameters_is_refused_in_words(kind: type) -> None:
    with pytest.raises(UserError, match="needs a model with parameters that are trained"):
        kind(nn.Tanh())
