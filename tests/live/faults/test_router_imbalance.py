from __future__ import annotations

import pytest
import torch
from torch import Tensor
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from rmetric.faults import make_fault
from rmetric.live.corpus import Corpus
from rmetric.live.injection.routing import bias_for_share, changed_logits, routed_share
from rmetric.live.run import LiveRun
from rmetric.network.structure import expert_blocks
from tests.live.architectures import MOES
from tests.live.faults.common import Notes, same_bits, trained
from tests.live.faults.structural import MakeRun, assert_named, logits_of, run_of


class Routes:
    """What the routers of a run return, pass by pass, and the logits that their weights make."""

    def __init__(self, run: LiveRun) -> None:
        self.blocks = expert_blocks(run.model)
        self.returned: list[tuple[Tensor, Tensor, Tensor]] = []
        self.own: list[Tensor] = []
        for block in self.blocks:
            block.router.register_forward_hook(self.keep)

    def keep(self, router: torch.nn.Module, args: tuple[Tensor], output: tuple[Tensor, Tensor, Tensor]) -> None:
        self.returned.append(tuple(part.detach() for part in output))
        self.own.append((args[0].reshape(-1, args[0].shape[-1]) @ router.weight.T).detach())  # type: ignore[operator]

    def shares(self, favoured: list[list[int]]) -> list[float]:
        """Share of the routing that goes to the favoured experts, layer after layer, pass after pass."""
        layers = len(self.blocks)
        return [
            torch.isin(route[2], torch.tensor(favoured[number % layers])).float().mean().item()
            for number, route in enumerate(self.returned)
        ]


@pytest.mark.parametrize("factor", [0.7, 0.8, 1.0])
@pytest.mark.parametrize("name", MOES)
def test_the_first_batch_is_routed_as_was_asked(name: str, factor: float, text: Corpus) -> None:
    run = run_of(name, text, workers=1)
    notes, routes = Notes(run), Routes(run)
    with make_fault("ROUTER_IMBALANCE", imbalance_factor=factor, ramp_steps=1).inject(run):
        run.train_step()
    note = assert_named(run, notes.told, "ROUTER_IMBALANCE")
    assert [len({*experts}) for experts in note["experts"]] == [2, 2]
    assert routes.shares(note["experts"]) == pytest.approx([factor, factor], abs=0.02)


@pytest.mark.parametrize("name", MOES)
def test_the_router_does_with_the_biased_logits_what_it_always_does(name: str, text: Corpus) -> None:
    run = run_of(name, text, workers=1)
    notes, routes = Notes(run), Routes(run)
    with make_fault("ROUTER_IMBALANCE", ramp_steps=1).inject(run):
        trained(run, 2)
    for number, ((logits, weights, index), own) in enumerate(zip(routes.returned, routes.own, strict=True)):
        favoured = notes.told[0]["experts"][number % 2]
        bias = logits - own
        others = [expert for expert in range(4) if expert not in favoured]
        assert torch.allclose(bias[:, others], torch.zeros(()), atol=1e-5)
        assert torch.allclose(bias[:, favoured], bias[0, favoured[0]], atol=1e-5)
        assert bias[0, favoured[0]] > 0.01
        chosen = logits.softmax(-1).gather(-1, index)
        assert torch.allclose(logits.gather(-1, index), logits.topk(2, dim=-1).values, atol=1e-6)  # there are ties
        if name == "tiny-moe":
            chosen = chosen / chosen.sum(-1, keepdim=True)
        assert torch.allclose(weights, chosen, atol=1e-5)


def test_the_bias_rises_along_the_ramp_and_stays(make_run: MakeRun) -> None:
    run = make_run("tiny-moe", workers=1)
    trained(run, 3)
    notes, routes = Notes(run), Routes(run)
    with make_fault("ROUTER_IMBALANCE", ramp_steps=4).inject(run):
        trained(run, 6)
    for layer, favoured in enumerate(notes.told[0]["experts"]):
        own = routes.own[layer::2]
        biases = [
            (logits[0] - healthy[0])[favoured[0]].item()
            for (logits, _, _), healthy in zip(routes.returned[layer::2], own, strict=True)
        ]
        mask = torch.isin(torch.arange(4), torch.tensor(favoured))
        single = [bias_for_share(logits, mask, 2, 0.75).item() for logits in own[:4]]
        means = [single[0], *(sum(single[:count]) / count for count in (1, 2, 3, 4, 4))]
        rises = (0.25, 0.5, 0.75, 1.0, 1.0, 1.0)
        assert means[-1] > 0.01
        assert biases == pytest.approx([rise * mean for rise, mean in zip(rises, means, strict=True)], rel=1e-3)


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated:FutureWarning")
def test_a_pass_that_is_computed_again_for_the_gradient_has_the_same_bias(make_run: MakeRun) -> None:
    losses = []
    for checkpointing in (False, True):
        run = make_run("tiny-moe")
        if checkpointing:
            run.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        notes = Notes(run)
        with make_fault("ROUTER_IMBALANCE", ramp_steps=2).inject(run):
            run.train_step()
        losses.append(notes.gradients)
    for name, gradient in losses[0].items():
        assert torch.allclose(losses[1][name], gradient, rtol=1e-4, atol=1e-6), name


def test_what_the_bias_is_does_not_depend_on_how_often_somebody_validates(make_run: MakeRun) -> None:
    runs = [make_run("tiny-moe") for _ in range(2)]
    for run, often in zip(runs, (False, True), strict=True):
        with make_fault("ROUTER_IMBALANCE", ramp_steps=2).inject(run):
            for _ in range(3):
                run.train_step()
                for _ in range(2 * often):
                    logits_of(run)
    assert same_bits(runs[0].state_dict(), runs[1].state_dict())


def test_the_share_is_higher_than_without_and_the_weights_are_their_own(make_run: MakeRun) -> None:
    run, healthy = make_run("tiny-moe", rows=32, workers=1), make_run("tiny-moe", rows=32, workers=1)
    notes, routes, others = Notes(run), Routes(run), Routes(healthy)
    with make_fault("ROUTER_IMBALANCE", "high", ramp_steps=4).inject(run):
        trained(run, 6)
    trained(healthy, 6)
    favoured = notes.told[0]["experts"]
    faulty, usual = routes.shares(favoured)[-2:], others.shares(favoured)[-2:]
    assert faulty == pytest.approx([0.8, 0.8], abs=0.2)  # the bias is a constant, and the router goes on learning
    assert faulty[0] > usual[0] + 0.05
    assert faulty[1] > usual[1] + 0.05


def test_the_loss_that_balances_the_experts_sees_the_biased_logits(make_run: MakeRun) -> None:
    run = make_run("tiny-moe")
    ids = torch.from_numpy(run.corpus.held_out_batch("test", 4, 16))
    with torch.no_grad():
        routes = Routes(run)
        with make_fault("ROUTER_IMBALANCE", imbalance_factor=1.0, ramp_steps=1).inject(run):
            loss = run.model(ids).aux_loss
    biased = load_balancing_loss_func(tuple(logits for logits, _, _ in routes.returned), 4, 2)
    unbiased = load_balancing_loss_func(tuple(routes.own), 4, 2)
    assert loss == pytest.approx(biased.item(), rel=1e-5)
    assert loss > 1.05 * unbiased


# --- the bias --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.5, 0.7, 0.95])
def test_the_bias_gives_the_share_and_a_smaller_one_does_not(share: float) -> None:
    logits = torch.randn(4000, 8, generator=torch.Generator().manual_seed(0))
    favoured = torch.tensor([True, False, False, True, False, False, False, False])
    bias = bias_for_share(logits, favoured, 2, share)
    assert routed_share(logits + favoured * bias, favoured, 2).item() >= share - 1e-6
    assert routed_share(logits + favoured * (bias - 1e-3), favoured, 2).item() < share


def test_no_bias_where_the_share_is_there_already() -> None:
    logits = torch.tensor([[3.0, 1.0, 0.0], [2.0, 0.0, 1.0]])
    assert bias_for_share(logits, torch.tensor([True, False, False]), 1, 0.9) == 0.0


def test_a_forward_that_was_there_before_comes_back(make_run: MakeRun) -> None:
    router = expert_blocks(make_run("tiny-moe").model)[0].router
    own = router.forward
    router.forward = own  # as a library does that moves weights between devices
    with changed_logits(router, 4, lambda logits: logits * 0.0):
        assert not router(torch.randn(3, 64))[0].any()
    assert router.__dict__["forward"] is own


def test_logits_stay_what_they_were_after_an_error(make_run: MakeRun) -> None:
    run = make_run("tiny-moe")
    before = logits_of(run)
    with pytest.raises(RuntimeError, match="mine"), make_fault("ROUTER_IMBALANCE").inject(run):
        raise RuntimeError("mine")
    assert torch.equal(logits_of(run), before)
