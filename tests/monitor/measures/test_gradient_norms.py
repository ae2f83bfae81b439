"""Norms of gradients: exact, fused, and not finite exactly where the gradient is not."""

import math

import pytest
import torch

from rmetric.monitor import TrainingMonitor
from rmetric.monitor.measures import GradientNorms
from rmetric.monitor.parameters import ModelParameters


def model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))


def test_against_double_precision() -> None:
    net = model()
    net(torch.randn(3, 8)).square().sum().backward()
    parameters = ModelParameters(net)
    present, values = GradientNorms(parameters).measure(1)
    assert [parameters.names[index] for index in present] == [name for name, _ in net.named_parameters()]
    expected = [float(p.grad.double().norm()) for p in net.parameters()]  # type: ignore[union-attr]
    assert values is not None and values.tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_bad_entry_shows_in_its_tensor_alone(value: float) -> None:
    net = model()
    net(torch.randn(3, 8)).sum().backward()
    net[1].weight.grad[0, 0] = value  # type: ignore[index, union-attr]
    parameters = ModelParameters(net)
    present, values = GradientNorms(parameters).measure(1)
    broken = [
        parameters.names[index] for index, finite in zip(present, values.isfinite().tolist(), strict=True) if not finite
    ]
    assert broken == ["1.weight"]


@pytest.mark.parametrize("kinds", [[torch.bfloat16] * 3, [torch.float32, torch.float32, torch.float64]])
def test_every_precision_is_measured_in_single_and_does_not_overflow(kinds: list[torch.dtype]) -> None:
    net = model()
    for layer, kind in zip(net, kinds, strict=True):
        layer.to(kind)
    for parameter in net.parameters():
        parameter.grad = torch.full_like(parameter, 300.0)
    _, values = GradientNorms(ModelParameters(net)).measure(1)
    assert values.dtype == torch.float32
    assert values.tolist() == pytest.approx([300.0 * math.sqrt(p.numel()) for p in net.parameters()])


def test_frozen_missing_sparse_and_tied_parameters() -> None:
    embedding, net = torch.nn.Embedding(5, 3, sparse=True), model()
    net[2].weight.requires_grad_(False)
    both = torch.nn.ModuleDict({"e": embedding, "n": net, "tied": net[0]})
    embedding(torch.tensor([1, 1, 2])).sum().backward()
    net[0](torch.ones(1, 8)).sum().backward()
    parameters = ModelParameters(both)
    present, values = GradientNorms(parameters).measure(1)
    assert [parameters.names[index] for index in present] == ["e.weight", "n.0.weight", "n.0.bias"]
    assert values is not None and float(values[0]) == pytest.approx(math.sqrt(3 * 4 + 3 * 1))


def test_no_gradient_at_all() -> None:
    assert GradientNorms(ModelParameters(model())).measure(1) == ([], None)


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
def test_gradients_that_have_a_graph_of_their_own_are_measured_without_it() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with TrainingMonitor(net, optimizer, hardware=False) as monitor:
        for _ in range(3):
            optimizer.zero_grad()
            loss = net(torch.randn(4, 8)).square().mean()
            loss.backward(create_graph=True)  # for a Hessian
            monitor.step(loss)
            optimizer.step()
        assert monitor.enabled
    _, values = GradientNorms(ModelParameters(net)).measure(1)
    assert values is not None and not values.requires_grad
    optimizer.zero_grad()
