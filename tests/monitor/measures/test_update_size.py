"""The RMS of the update: by hand, against AdamW's own formula, on a sample, and over a resume."""

import math
from collections.abc import Iterable

import pytest
import torch

from rmetric.monitor import TrainingMonitor
from rmetric.monitor.measures import UpdateSize
from rmetric.monitor.parameters import ModelParameters


def linear(seed: int = 0, size: int = 30) -> torch.nn.Linear:
    torch.manual_seed(seed)
    return torch.nn.Linear(size, size)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    optimizer.zero_grad()
    x = torch.randn(8, 30, generator=torch.Generator().manual_seed(seed))
    model(x).square().mean().backward()
    optimizer.step()


def test_it_is_what_the_state_of_adamw_says() -> None:
    model = linear()
    rate, decay, epsilon, (beta1, beta2) = 1e-2, 0.1, 1e-8, (0.9, 0.999)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay, eps=epsilon)
    size = UpdateSize(ModelParameters(model), entries=None)
    assert size.measure() is None
    for step in range(1, 6):
        before = [p.detach().double().clone() for p in model.parameters()]
        train(model, optimizer, step)
        updates = []
        for old, parameter in zip(before, model.parameters(), strict=True):
            state = optimizer.state[parameter]
            first = state["exp_avg"].double() / (1 - beta1**step)
            second = (state["exp_avg_sq"].double() / (1 - beta2**step)).sqrt() + epsilon
            updates.append((rate * (first / second + decay * old)).flatten())
        expected = float(torch.cat(updates).square().mean().sqrt())
        assert float(size.measure()) == pytest.approx(expected, rel=1e-4)  # type: ignore[arg-type]


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adagrad, torch.optim.RMSprop])
def test_it_needs_to_know_nothing_of_the_optimizer(optimizer: type[torch.optim.Optimizer]) -> None:
    model = linear()
    steps = optimizer(model.parameters(), lr=0.1)  # type: ignore[call-arg]
    size = UpdateSize(ModelParameters(model), entries=None)
    size.measure()
    before = torch.nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    train(model, steps, 0)
    moved = torch.nn.utils.parameters_to_vector(model.parameters()).detach() - before
    assert float(size.measure()) == pytest.approx(float(moved.square().mean().sqrt()), rel=1e-6)  # type: ignore[arg-type]


def test_a_sample_knows_it_to_a_few_percent() -> None:
    model = linear(size=300)
    everything, sample = (
        UpdateSize(ModelParameters(model), entries=None),
        UpdateSize(ModelParameters(model), entries=4_000),
    )
    everything.measure(), sample.measure()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.01 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    assert float(sample.measure()) == pytest.approx(float(everything.measure()), rel=0.05)  # type: ignore[arg-type]


def test_a_moved_or_transposed_parameter_is_still_the_parameter() -> None:
    model = linear()
    model.weight = torch.nn.Parameter(model.weight.detach().t())
    size = UpdateSize(ModelParameters(model), entries=None)
    size.measure()
    model.weight.data = model.weight.data.clone()
    with torch.no_grad():
        model.weight += 1.0
    expected = math.sqrt(model.weight.numel() / (model.weight.numel() + model.bias.numel()))
    assert float(size.measure()) == pytest.approx(expected, rel=1e-6)  # type: ignore[arg-type]


def test_a_resumed_one_knows_its_first_update() -> None:
    model = linear()
    size, resumed = UpdateSize(ModelParameters(model)), UpdateSize(ModelParameters(model))
    size.measure()
    resumed.load_state_dict(size.state_dict())
    with torch.no_grad():
        model.weight += 0.5
    assert float(resumed.measure()) == float(size.measure())  # type: ignore[arg-type]


def test_a_state_of_another_sample_costs_the_first_update_and_no_more() -> None:
    model = linear()
    size, resumed = UpdateSize(ModelParameters(model), 200), UpdateSize(ModelParameters(model), 400)
    size.measure()
    resumed.load_state_dict(size.state_dict())
    assert resumed.measure() is None
    with torch.no_grad():
        model.weight += 0.5
    assert float(resumed.measure()) > 0.4  # type: ignore[arg-type]


def test_half_precision_is_measured_in_single() -> None:
    model = linear().to(torch.bfloat16)
    size = UpdateSize(ModelParameters(model), entries=None)
    size.measure()
    with torch.no_grad():
        model.weight += 1.0
    assert size.measure().dtype == torch.float32  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_an_update_that_the_weights_round_away_is_none_of_0(kind: torch.dtype) -> None:
    size = UpdateSize(ModelParameters(linear().to(kind)))
    assert not size.may_be_rounded_away(0.0)
    assert not size.may_be_rounded_away(1e-8)  # the highest so far
    assert not size.may_be_rounded_away(1e-3)
    assert not size.may_be_rounded_away(1e-5 if kind == torch.bfloat16 else 1e-9)
    resumed = UpdateSize(ModelParameters(linear().to(kind)))
    resumed.load_state_dict(size.state_dict())
    low = 1e-6 if kind == torch.bfloat16 else 1e-10
    for each in (size, resumed):
        assert each.may_be_rounded_away(low)
        assert not each.may_be_rounded_away(low)  # it falls no more
        assert each.may_be_rounded_away(0.9 * low)
    later = UpdateSize(ModelParameters(linear().to(kind)))
    later.load_state_dict(size.state_dict())
    for each in (size, later):
        assert not each.may_be_rounded_away(0.9 * low)
        assert not each.may_be_rounded_away(0.0)
        assert not each.may_be_rounded_away(math.nan)


def updates_at(rates: Iterable[float], trained: bool = True) -> tuple[list[float], dict[str, int]]:
    """Of a model in BF16 at these learning rates: the size of the update in each record, and the alerts."""
    model, updates = linear().bfloat16(), []
    optimizer = torch.optim.AdamW(model.parameters() if trained else linear().parameters(), lr=1e-3)
    monitor = TrainingMonitor(model, optimizer, hardware=False, announce=False)
    for step, rate in enumerate(rates):
        optimizer.param_groups[0]["lr"] = rate
        model.zero_grad()
        x = torch.randn(8, 30, generator=torch.Generator().manual_seed(step)).bfloat16()
        loss = (model(x).float() - 1.0).square().mean()
        loss.backward()
        monitor.step(loss)
        optimizer.step()
        updates.append(monitor.last["update_rms"] if monitor.last else math.nan)
    monitor.close()
    return updates, monitor.alerts


@pytest.mark.parametrize("trained", [True, False])
def test_a_rate_that_ends_near_0_leaves_16_bits_in_order_but_an_optimizer_of_nothing_moves_none(trained: bool) -> None:
    updates, alerts = updates_at((1e-3 * 0.7**step for step in range(60)), trained)
    assert alerts == {}
    assert updates[8] > 0.0 if trained else updates[8] == 0.0
    assert math.isnan(updates[-1])


@pytest.mark.slow
@pytest.mark.parametrize("lasts", [True, False])
def test_a_rate_that_stays_where_16_bits_move_no_more_has_stopped_the_training(lasts: bool) -> None:
    _, alerts = updates_at(1e-3 if step < 80 else 1e-9 if lasts else 1e-9 * 0.99**step for step in range(160))
    assert bool(alerts) is lasts


def test_a_process_without_entries_has_no_update() -> None:
    size = UpdateSize(ModelParameters(torch.nn.ParameterList([torch.empty(0)])))
    assert [size.measure(), size.measure()] == [None, None]
