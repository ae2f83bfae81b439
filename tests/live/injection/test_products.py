"""Tests of rmetric.live.injection.flips and payload."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'live'")

from rmetric.live.injection.bits import flip_bit  # noqa: E402
from rmetric.live.injection.flips import ProductFlip  # noqa: E402
from rmetric.live.injection.workers import changed_payload  # noqa: E402


def _two_layers() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4, bias=False), torch.nn.Linear(4, 2, bias=False))


@pytest.mark.parametrize("call", [0, 1])
def test_only_the_counted_product_of_the_forward_pass_is_changed(call: int) -> None:
    model, inputs = _two_layers(), torch.ones(5, 3)
    seen = []
    model[call].register_forward_hook(lambda module, given, result: seen.append(result.detach().clone()))
    before = seen.append(model(inputs).detach()) or seen[0]
    with ProductFlip("forward", call, lambda product: flip_bit(product, (1, 0), 31)):
        model(inputs)
    changed = seen[2] != before
    assert changed.sum() == 1
    assert changed[1, 0]
    assert torch.equal(seen[2][1, 0], -before[1, 0])


def test_a_product_of_the_backward_pass_is_changed_and_the_forward_pass_is_not() -> None:
    model, inputs = _two_layers(), torch.ones(5, 3)
    model(inputs).sum().backward()
    healthy = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    outputs = []
    with ProductFlip("backward", 0, lambda product: flip_bit(product, (0, 0), 31)):
        outputs.append(model(inputs))
        outputs[0].sum().backward()
    assert torch.equal(outputs[0], model(inputs))
    differing = [int((own.grad != other).sum()) for own, other in zip(model.parameters(), healthy, strict=True)]
    assert differing == [0, 1]  # the first product is the gradient of the last weight


def test_nothing_is_left_behind_by_the_mode() -> None:
    model, inputs = _two_layers(), torch.ones(5, 3)
    before = model(inputs)
    with ProductFlip("forward", 9, lambda product: pytest.fail("there is no tenth product")):
        model(inputs)
    assert torch.equal(model(inputs), before)


def test_a_payload_is_changed_before_it_is_added_and_hooks_that_came_later_see_it() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    seen = []
    with changed_payload(weight, lambda gradient: gradient.mul_(10.0)):
        handle = weight.register_hook(lambda gradient: seen.append(gradient.clone()))
        (weight * 2.0).sum().backward()
    handle.remove()
    (weight * 2.0).sum().backward()
    assert torch.equal(seen[0], torch.full((3,), 20.0))
    assert torch.equal(weight.grad, torch.full((3,), 22.0))
    assert not weight._backward_hooks
