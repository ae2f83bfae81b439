"""Routers: their matrices, their choices, and that faults of routing show."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rmetric.errors import UserError
from rmetric.live.injection.routing import changed_logits
from rmetric.monitor.mechanism import Router
from rmetric.monitor.mechanism.router import router_geometry, routing_of
from rmetric.network.structure import expert_blocks
from tests.live.architectures import MOES, ROUTED, model_of, tokens
from tests.monitor.mechanism.common import measured, seen_in


@pytest.mark.parametrize("name", MOES)
def test_choices_against_the_models_own_logits(name: str) -> None:
    model, batches = model_of(name), [tokens(), tokens(3, 10)]
    monitor = Router(model)
    monitor.arm()
    layers: list[list[Tensor]] = [[], []]
    for batch in batches:
        for kept, logits in zip(layers, model(batch, output_router_logits=True).router_logits, strict=True):
            kept.append(logits.detach().double())
    seen = measured(monitor)
    entropies, loads = [], []
    for kept in layers:
        probabilities = torch.cat(kept).softmax(dim=-1)
        entropies.append(float(-(probabilities * probabilities.log()).sum(dim=-1).mean() / math.log(4)))
        chosen = probabilities.topk(2).indices.flatten().numpy()
        loads.append(np.bincount(chosen, minlength=4) / len(chosen))
    assert seen.details["routing_entropy"].tolist() == pytest.approx(entropies, rel=1e-5)
    assert seen.details["load"] == pytest.approx(np.array(loads), abs=1e-6)
    assert seen.values["routing_entropy"] == pytest.approx(min(entropies), rel=1e-5)
    assert seen.values["expert_load_max"] == pytest.approx(np.max(loads))
    assert seen.values["expert_load_min"] == pytest.approx(np.min(loads))
    layer, expert = np.unravel_index(np.argmax(loads), (2, 4))
    assert seen.worst["expert_load_max"] == f"layer {layer}, expert {expert}"


@pytest.mark.parametrize("name", ROUTED)
def test_choices_against_what_goes_into_router_and_experts(name: str) -> None:
    model = model_of(name)
    monitor = Router(model)
    logits: list[Tensor] = []
    chosen: list[np.ndarray] = []
    part, router = ("feed_forward", "router") if name == "llama-4" else ("mlp", "gate")
    for layer in model.model.layers[-2:]:
        block = getattr(layer, part)

        def route(module: nn.Module, args: tuple[Tensor]) -> None:
            logits.append(args[0].detach().double().flatten(0, -2) @ module.weight.detach().double().T)
            if name == "llama-4":  # its experts get every token, times a score that is 0 where they are not chosen
                chosen.append(logits[-1].topk(2).indices.numpy())

        def compute(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            chosen.extend(index.numpy() for index in args[1:2])

        getattr(block, router).register_forward_pre_hook(route)
        block.experts.register_forward_pre_hook(compute)
    monitor.arm()
    model(tokens())
    seen = measured(monitor)
    probabilities = [values.softmax(dim=-1) for values in logits]
    entropies = [float(torch.special.entr(rows).sum(dim=-1).mean() / math.log(4)) for rows in probabilities]
    loads = [np.bincount(index.ravel(), minlength=4) / index.size for index in chosen]
    assert seen.details["routing_entropy"].tolist() == pytest.approx(entropies, rel=1e-5)
    assert seen.details["load"] == pytest.approx(np.array(loads), abs=1e-6)
    assert seen.values["expert_load_max"] == pytest.approx(np.max(loads))


def test_a_router_that_hands_out_logits_alone_has_an_entropy_and_no_load() -> None:
    logits, load = routing_of(torch.tensor([[0.0, 1.0], [2.0, 3.0]]), 2, 1)
    assert load is None and logits is not None
    assert logits.tolist() == [[0.0, 1.0], [2.0, 3.0]]


LOGITS = torch.randn(6, 4, generator=torch.Generator().manual_seed(3))
CHOSEN = LOGITS.topk(2).indices
MAP = torch.zeros(6, 4, dtype=torch.bool).scatter(1, CHOSEN, True)
LOAD = torch.bincount(CHOSEN.flatten(), minlength=4).tolist()
DROPPED = CHOSEN.where(CHOSEN != 3, -1)


@pytest.mark.parametrize(
    ("chosen", "load"),
    [
        (CHOSEN, LOAD),
        (CHOSEN.to(torch.uint8), LOAD),
        (DROPPED, [*LOAD[:3], 0]),
        (CHOSEN.where(CHOSEN != 3, 4), [*LOAD[:3], 0]),  # dropped, too
        (MAP, LOAD),
        (MAP.long(), LOAD),
        (LOGITS.T.topk(3).indices, None),  # an expert chooses its tokens
        (LOGITS.T.topk(4).indices, [math.nan] * 4),
    ],
)
def test_what_a_router_says_of_its_choices(chosen: Tensor, load: list[float] | None) -> None:
    logits, found = routing_of((LOGITS, chosen, torch.tensor(0.1)), 4, 2)
    assert logits is LOGITS
    assert (None if found is None else found.tolist()) == (load if load is None else pytest.approx(load, nan_ok=True))


@pytest.mark.parametrize("shape", [(16,), (2, 8), (4, 4)])
def test_numbers_of_one_expert_a_token_may_lack_a_last_dimension(shape: tuple[int, ...]) -> None:
    logits = torch.randn(*shape, 4, generator=torch.Generator().manual_seed(3))
    chosen = logits.argmax(dim=-1)
    _, load = routing_of((logits, chosen), 4, 1)
    assert load is not None and load.tolist() == torch.bincount(chosen.flatten(), minlength=4).tolist()


def test_every_token_may_go_to_every_expert() -> None:
    _, load = routing_of((LOGITS, LOGITS.topk(4).indices), 4, 4)
    assert load is not None and load.tolist() == [6.0] * 4


def test_probabilities_in_front_of_the_logits_are_no_choice() -> None:
    logits, load = routing_of((LOGITS.softmax(dim=-1), LOGITS), 4, 2)
    assert logits is LOGITS
    assert load is not None and load.isnan().all()


class HandWritten(nn.Module):
    """A mixture whose router hands out its probabilities first, or the weights of the chosen experts alone."""

    class Gate(nn.Module):
        def __init__(self, whole: bool) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 8, generator=torch.Generator().manual_seed(0)))
            self.whole = whole

        def forward(self, data: Tensor) -> tuple[Tensor, ...]:
            probabilities = nn.functional.linear(data, self.weight).softmax(dim=-1)
            weights, chosen = probabilities.topk(2, dim=-1)
            return (probabilities, weights, chosen) if self.whole else (weights, chosen)

    def __init__(self, whole: bool) -> None:
        super().__init__()
        self.top_k, self.gate, self.experts = 2, self.Gate(whole), nn.Identity()
        self.experts.num_experts = 4

    def forward(self, data: Tensor) -> Tensor:
        return self.experts(data) * self.gate(data)[0].sum()


@pytest.mark.parametrize("whole", [True, False])
def test_a_router_may_hand_out_probabilities_or_weights_alone(whole: bool) -> None:
    data = torch.randn(50, 8, generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(nn.ModuleList([HandWritten(whole)]))
    seen = seen_in(Router(model), lambda: model[0][0](data))
    probabilities = (data @ model[0][0].gate.weight.detach().T).softmax(dim=-1)
    chosen = probabilities.topk(2).indices.flatten().numpy()
    entropy = float(torch.special.entr(probabilities).sum(dim=-1).mean() / math.log(4))
    assert seen.details["load"][0].tolist() == pytest.approx((np.bincount(chosen, minlength=4) / 100).tolist())
    assert seen.values.get("routing_entropy") == (pytest.approx(entropy, rel=1e-5) if whole else None)


def test_choices_of_no_known_form_leave_the_entropy_and_the_geometry() -> None:
    model = nn.Sequential(nn.ModuleList([HandWritten(True)]))
    gate = model[0][0].gate
    gate.register_forward_hook(lambda _, args, output: (output[0], output[0].T.topk(4).indices))  # tokens of an expert
    data = torch.randn(50, 8, generator=torch.Generator().manual_seed(1))
    seen = seen_in(Router(model), lambda: model[0][0](data))
    assert {*seen.values} == {"router_similarity", "router_conditioning", "routing_entropy"}


@pytest.mark.parametrize("shape", [(4, 16), (8, 3), (2, 5)])
def test_geometry_against_the_definitions_in_double_precision(shape: tuple[int, int]) -> None:
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(0)).double()
    rows = weight.numpy()
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = (units @ units.T)[~np.eye(len(rows), dtype=bool)]
    values = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)[: min(shape[0] - 1, shape[1])]
    shares = values**2 / np.sum(values**2)
    found = {name: float(value) for name, value in router_geometry(weight).items()}
    assert found["similarity"] == pytest.approx(cosines.mean(), rel=1e-9)
    assert found["conditioning"] == pytest.approx(values[0] / values[-1], rel=1e-9)
    assert found["effective_rank"] == pytest.approx(math.exp(-np.sum(shares * np.log(shares))), rel=1e-9)


def test_geometry_of_special_matrices() -> None:
    alike = router_geometry(torch.ones(4, 6))
    assert float(alike["similarity"]) == pytest.approx(1.0)
    assert float(alike["conditioning"]) == math.inf
    regular = router_geometry(torch.eye(4, 6))  # a regular simplex around its mean
    assert float(regular["similarity"]) == pytest.approx(0.0, abs=1e-6)
    assert float(regular["conditioning"]) == pytest.approx(1.0, rel=1e-5)
    assert float(regular["effective_rank"]) == pytest.approx(3.0, rel=1e-5)
    broken = torch.eye(4, 6)
    broken[1, 1] = math.nan
    assert all(value.isnan() for value in router_geometry(broken).values())


def test_rows_that_become_alike_raise_similarity_and_conditioning_where_they_are() -> None:
    model = model_of("tiny-moe")
    monitor = Router(model)
    healthy = measured(monitor)
    router = expert_blocks(model)[1].router
    with torch.no_grad():
        router.weight.copy_(router.weight[:1] + 1e-3 * router.weight)
    collapsed = measured(monitor)
    assert collapsed.values["router_similarity"] > 0.99 > healthy.values["router_similarity"]
    assert collapsed.worst["router_similarity"] == "layer 1"
    assert "routing_entropy" not in collapsed.values  # no token has come


def test_a_router_that_is_brought_to_favour_one_expert_shows() -> None:
    model = model_of("tiny-moe")
    block = expert_blocks(model)[0]
    monitor = Router(model)
    monitor.arm()
    with changed_logits(block.router, 4, lambda logits: logits + torch.tensor([0.0, 0.0, 50.0, 0.0])):
        model(tokens())
    seen = measured(monitor)
    assert seen.details["load"][0, 2] == pytest.approx(0.5)  # one of the two chosen of every token
    assert seen.details["routing_entropy"][0] < 0.01
    assert seen.worst["routing_entropy"] == "layer 0"


def test_validation_and_unsampled_steps_do_not_count_and_hooks_are_given_back() -> None:
    model = model_of("tiny-moe")
    monitor = Router(model)
    routers = [block.router for block in expert_blocks(model)]
    model(tokens())
    before = [dict(router._forward_hooks) for router in routers]
    monitor.arm()
    assert [len(router._forward_hooks) for router in routers] == [len(hooks) + 1 for hooks in before]
    model.eval()(tokens())
    seen = measured(monitor)
    assert "expert_load_max" not in seen.values
    assert [dict(router._forward_hooks) for router in routers] == before


def test_a_computation_that_is_done_once_more_counts_once() -> None:
    model = model_of("tiny-moe")
    monitor = Router(model)
    once = seen_in(monitor, lambda: model(tokens()))
    monitor.arm()
    model(tokens() * 0)
    monitor.restart()
    model(tokens())
    assert measured(monitor).details["load"].tolist() == once.details["load"].tolist()


def test_a_dense_model_has_no_router() -> None:
    with pytest.raises(UserError, match="the monitor of routers needs a mixture-of-experts model"):
        Router(model_of("tiny-llama"))
