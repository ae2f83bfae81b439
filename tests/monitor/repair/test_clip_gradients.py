"""Gradients that are clipped, to what norm."""

from __future__ import annotations

import math

import pytest

from rmetric.monitor.repair import ClipGradients, Policy, RecomputeStep
from tests.monitor.repair.common import Toy, poisoned


@pytest.mark.parametrize("norm", [None, 0.25])
def test_a_large_gradient_is_clipped_to_what_is_usual_or_given(norm: float | None) -> None:
    toy = poisoned(Toy(), 30)
    norms: list[float] = []
    toy.optimizer.register_step_pre_hook(
        lambda *_: norms.append(math.sqrt(sum(float(p.grad.square().sum()) for p in toy.model.parameters())))
    )
    with toy.watch(policy=ClipGradients(norm=norm)) as monitor:
        toy.train(30, monitor)
        [repair] = monitor.repairs
    assert (repair.step, repair.verdict) == (30, "clipped")
    assert norms[-1] == pytest.approx(repair.details["clipped_to"], rel=1e-4)
    assert norms[-1] == pytest.approx(norm or norms[-2], rel=0.5)


@pytest.mark.parametrize("policies", [[ClipGradients()], [RecomputeStep(), ClipGradients()]])
def test_every_step_of_a_burst_is_clipped(policies: list[Policy]) -> None:
    toy = poisoned(Toy(), *range(30, 36), factor=50.0)
    with toy.watch(policy=policies) as monitor:
        toy.train(40, monitor)
        clipped = [repair.step for repair in monitor.repairs if repair.verdict == "clipped"]
    assert clipped == [*range(30, 36)]


def test_what_is_not_finite_cannot_be_clipped() -> None:
    toy = poisoned(Toy(), 30, factor=math.inf)
    with toy.watch(policy=ClipGradients()) as monitor:
        toy.train(30, monitor)
        assert [repair.policy for repair in monitor.repairs] == ["RefuseUpdate"]
