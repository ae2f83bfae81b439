"""Tests of studies.sdc.inject: what is flipped, once, and what is left behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rmetric.errors import UserError
from rmetric.live.run import LiveRun, NoObserver
from studies.sdc.campaign import fresh_run
from studies.sdc.inject import injecting
from studies.sdc.plan import Injection, Settings, Stage, Target
from studies.sdc.products import products_of, rehearsing

SETTINGS = Settings(rows=4, length=16, workers=2)
WEIGHT = "model.layers.0.mlp.down_proj.weight"


class Notes(NoObserver):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def note(self, event: str, **fields: Any) -> None:
        self.events.append({"event": event, **fields})


@pytest.fixture
def run() -> LiveRun:
    run = fresh_run(SETTINGS)
    run.train_step()
    return run


def _injection(stage: Stage, target: Target, **more: Any) -> Injection:
    tensor = WEIGHT.removesuffix(".weight") if stage in ("forward", "backward") else WEIGHT
    worker = None if stage == "memory" else 1
    fields = {"step": 2, "kernel": "mlp", "tensor": tensor, "layer": 0, "worker": worker, "element": 7, "bit": 30}
    return Injection(stage=stage, target=target, **{**fields, **more})


EVERYWHERE = [
    _injection("forward", "output", call=8),
    _injection("backward", "input_gradient", call=21),
    _injection("memory", "weight"),
    _injection("memory", "gradient"),
    _injection("memory", "exp_avg"),
    _injection("memory", "exp_avg_sq"),
    _injection("payload", "payload"),
]


@pytest.mark.parametrize("injection", EVERYWHERE, ids=lambda item: item.target)
def test_a_bit_is_flipped_once_and_noted_with_its_place(run: LiveRun, injection: Injection) -> None:
    run.observer = notes = Notes()
    with injecting(run, injection):
        for _ in range(3):
            run.train_step()
    (event,) = notes.events
    assert event["event"] == "CORRUPTION"
    assert (event["step"], event["bit"], event["bit_part"], event["index"]) == (2, 30, "exponent", 7)
    assert event["before"] != event["after"]
    assert {name: event.get(name) for name in ("stage", "target", "tensor", "worker", "layer")} == {
        name: getattr(injection, name) for name in ("stage", "target", "tensor", "worker", "layer")
    }


@pytest.mark.parametrize("injection", EVERYWHERE, ids=lambda item: item.target)
def test_afterwards_hooks_and_computation_are_as_before(run: LiveRun, injection: Injection) -> None:
    state, hooks = run.state_dict(), _hooks(run)
    healthy = run.train_step()
    run.load_state_dict(state)
    with injecting(run, injection):
        run.train_step()
    assert _hooks(run) == hooks
    run.load_state_dict(state)
    assert torch.equal(run.train_step(), healthy)


def _hooks(run: LiveRun) -> list[int]:
    modules = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in run.model.modules()]
    parameters = [len(parameter._backward_hooks or {}) for parameter in run.model.parameters()]
    return [*modules, *parameters, sum(map(len, run.hooks.values()))]


def test_a_step_that_is_computed_again_is_not_hit_again(run: LiveRun) -> None:
    losses = []
    with injecting(run, EVERYWHERE[0]):
        for _ in range(2):
            with rehearsing(run):
                losses.append(run.train_step())
    with rehearsing(run):
        healthy = run.train_step()
    assert not torch.equal(losses[0], losses[1])
    assert torch.equal(losses[1], healthy)


def test_a_rehearsal_leaves_the_run_as_it_was(run: LiveRun) -> None:
    state = run.state_dict()
    with rehearsing(run):
        run.train_step()
    assert run.step == state["step"]
    assert all(torch.equal(value, state["model"][name]) for name, value in run.model.state_dict().items())


def test_a_recurring_flip_comes_again(run: LiveRun) -> None:
    run.observer = notes = Notes()
    with injecting(run, _injection("memory", "gradient", recurs=1.0, bit=3)):
        for _ in range(3):
            run.train_step()
    assert [event["step"] for event in notes.events] == [2, 3, 4]


@pytest.mark.parametrize(
    "injection",
    [_injection("memory", "weight", tensor="nothing"), _injection("payload", "payload", tensor="nothing")],
    ids=["memory", "payload"],
)
def test_a_tensor_that_is_not_there_is_refused_on_entering(run: LiveRun, injection: Injection) -> None:
    with pytest.raises(UserError, match="no parameter nothing"), injecting(run, injection):
        pass


def test_an_element_that_is_not_there_is_refused(run: LiveRun) -> None:
    with (
        pytest.raises(UserError, match="element 1000000"),
        injecting(run, _injection("memory", "weight", element=10**6)),
    ):
        run.train_step()


def test_products_are_told_apart_by_kernel_and_by_what_they_are() -> None:
    products = products_of(fresh_run(SETTINGS))
    forward = [product for product in products if product.stage == "forward"]
    assert [product.kernel for product in forward[:9]] == [
        "query", "key", "value", "scores", "mixing", "output projection", "mlp", "mlp", "mlp"
    ]  # fmt: skip
    assert forward[-1].kernel == "lm_head"
    weights = {product.tensor for product in products if product.target == "weight_gradient"}
    matrices = {name for name, parameter in fresh_run(SETTINGS).model.named_parameters() if parameter.dim() == 2}
    assert weights == matrices - {"model.embed_tokens.weight"}
    inputs = [product for product in products if product.target == "input_gradient" and product.kernel == "value"]
    assert inputs[-1].reaches == {"model.embed_tokens.weight", "model.layers.0.input_layernorm.weight"}


def test_experts_and_router_are_products_of_a_mixture() -> None:
    products = products_of(fresh_run(Settings(model="tiny-moe", rows=4, length=16, workers=2)))
    kinds = {(product.target, product.kernel) for product in products}
    assert {("output", "router"), ("output", "experts"), ("weight_gradient", "experts")} <= kinds
    assert {product.tensor.rsplit(".", 1)[1] for product in products if product.target == "weight_gradient"} >= {
        "gate_up_proj", "down_proj"
    }  # fmt: skip
