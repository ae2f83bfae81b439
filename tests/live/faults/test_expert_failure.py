from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rmetric.errors import UserError
from rmetric.faults import make_fault
from rmetric.live.corpus import Corpus
from rmetric.live.run import LiveRun
from rmetric.network.structure import expert_blocks
from tests.live.architectures import MOES
from tests.live.faults.common import Notes
from tests.live.faults.structural import MakeRun, assert_named, logits_of, run_of

IMPLEMENTATIONS = ["eager", "grouped_mm", "batched_mm"]
"""How transformers multiplies with all experts' weights."""


def passes(run: LiveRun) -> list[dict[str, Any]]:
    """What each module of experts gets, and what it answers, in one forward pass."""
    seen: list[dict[str, Any]] = []

    def keep(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        seen.append({"states": states[-1], "index": routes[-1][2], "weights": routes[-1][1], "output": output})

    states: list[Tensor] = []
    routes: list[tuple[Tensor, Tensor, Tensor]] = []
    hooks = []
    for block in expert_blocks(run.model):
        hooks += [
            block.router.register_forward_hook(lambda module, args, output: routes.append(output)),
            block.router.register_forward_pre_hook(lambda module, args: states.append(args[0])),
            block.experts.register_forward_hook(keep),
        ]
    logits_of(run)
    for hook in hooks:
        hook.remove()
    return seen


def answer(experts: nn.Module, expert: int, states: Tensor) -> Tensor:
    """What one expert says of each token, written out."""
    gate, up = (states @ experts.gate_up_proj[expert].T).chunk(2, dim=-1)  # type: ignore[index]
    return (nn.functional.silu(gate) * up) @ experts.down_proj[expert].T  # type: ignore[index]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("name", MOES)
def test_the_answer_is_the_sum_over_the_other_experts(name: str, implementation: str, text: Corpus) -> None:
    run = run_of(name, text)
    run.model.set_experts_implementation(implementation)
    notes = Notes(run)
    with make_fault("EXPERT_FAILURE", "medium").inject(run):
        seen = passes(run)
    note = assert_named(run, notes.told, "EXPERT_FAILURE")
    assert [len({*experts}) for experts in note["experts"]] == [2, 2]
    for block, failed, one in zip(expert_blocks(run.model), note["experts"], seen, strict=True):
        expected = torch.zeros_like(one["output"])
        for expert in {*range(block.count)} - {*failed}:
            weight = (one["weights"] * (one["index"] == expert)).sum(-1, keepdim=True)
            expected += weight * answer(block.experts, expert, one["states"])
        assert torch.allclose(one["output"], expected, rtol=1e-4, atol=1e-5)
        silent = torch.isin(one["index"], torch.tensor(failed)).all(-1)
        assert silent.any()  # some tokens have lost both
        assert not one["output"][silent].any()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_nan_reaches_those_tokens_that_are_routed_there_and_no_others(implementation: str, text: Corpus) -> None:
    run = run_of("tiny-moe", text)
    run.model.set_experts_implementation(implementation)
    notes = Notes(run)
    healthy = passes(run)[0]
    with make_fault("EXPERT_FAILURE", "low", mode="nan", layer=0).inject(run):
        faulty = passes(run)[0]
    (failed,) = notes.told[0]["experts"]
    routed = torch.isin(healthy["index"], torch.tensor(failed)).any(-1)
    assert 0 < routed.sum() < len(routed)
    assert faulty["output"][routed].isnan().all()
    assert torch.equal(faulty["output"][~routed], healthy["output"][~routed])


def test_nan_ends_the_run(make_run: MakeRun) -> None:
    run = make_run("tiny-moe")
    with make_fault("EXPERT_FAILURE", "low", mode="nan").inject(run):
        assert run.train_step().isnan()
    assert run.non_finite_step == 1


def test_a_failed_expert_learns_nothing(make_run: MakeRun) -> None:
    run = make_run("tiny-moe")
    notes = Notes(run)
    with make_fault("EXPERT_FAILURE", "medium").inject(run):
        run.train_step()
    for block, failed in zip(expert_blocks(run.model), notes.told[0]["experts"], strict=True):
        for part in ("gate_up_proj", "down_proj"):
            gradient = notes.gradients[f"{block.name}.experts.{part}"]
            for expert in range(block.count):
                assert bool(gradient[expert].any()) == (expert not in failed)


def test_the_router_is_told_that_a_failed_expert_contributes_nothing(make_run: MakeRun) -> None:
    """As if the expert had answered zero, and not as if its weight were a constant of the model."""
    run, reference = make_run("tiny-moe", workers=1), make_run("tiny-moe", workers=1)
    notes, references = Notes(run), Notes(reference)
    with make_fault("EXPERT_FAILURE", "low").inject(run):
        run.train_step()
    with torch.no_grad():  # an expert whose last matrix is zero answers zero
        for block, failed in zip(expert_blocks(reference.model), notes.told[0]["experts"], strict=True):
            block.experts.down_proj[failed] = 0.0  # type: ignore[operator]
    reference.train_step()
    for name in ("model.layers.0.mlp.gate.weight", "model.layers.1.mlp.gate.weight", "lm_head.weight"):
        assert torch.allclose(notes.gradients[name], references.gradients[name], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(("layer", "expected"), [(None, [0, 1]), (1, [1])])
def test_it_is_one_layer_or_all(layer: int | None, expected: list[int], make_run: MakeRun) -> None:
    run = make_run("tiny-moe")
    notes = Notes(run)
    with make_fault("EXPERT_FAILURE", layer=layer).inject(run):
        assert notes.told[0]["modules"] == [f"model.layers.{index}.mlp" for index in expected]


def test_all_experts_may_fail_and_no_more(make_run: MakeRun) -> None:
    with make_fault("EXPERT_FAILURE", "high").inject(run := make_run("tiny-moe")):
        assert not passes(run)[0]["output"].any()
    with pytest.raises(UserError, match=r"is to fail 5 experts and model\.layers\.0\.mlp has 4"):
        make_fault("EXPERT_FAILURE", experts=5).inject(run).__enter__()


def test_a_dense_model_is_refused_in_words(make_run: MakeRun) -> None:
    run = make_run("tiny-llama")
    run.model.config.name_or_path = "tiny-llama"
    with pytest.raises(UserError) as caught:
        make_fault("EXPERT_FAILURE").inject(run).__enter__()
    assert str(caught.value) == (
        "fault EXPERT_FAILURE needs a mixture-of-experts model and tiny-llama (LlamaForCausalLM) is dense; "
        "choose a model that has experts"
    )
