from __future__ import annotations

import copy
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rmetric.errors import UserError
from rmetric.network.attention import (
    grouped_logits,
    masked_logits,
    replaced_attention,
    unmasked_logits,
    wrapped_attention,
)
from rmetric.network.structure import attentions
from tests.live.architectures import NAMES, model_of, modules_of, padded, tokens


class Wrap:
    """Writes its name into a list and goes on, with the values multiplied."""

    def __init__(self, name: str = "", calls: list[str] | None = None, factor: float = 1.0) -> None:
        self.name, self.calls, self.factor = name, [] if calls is None else calls, factor

    def __call__(
        self, inner: Any, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any
    ) -> Any:
        self.calls.append(self.name)
        return inner(module, query, key, value * self.factor, mask, **options)


def logits_of(model: nn.Module) -> Tensor:
    return model(tokens(), attention_mask=padded()).logits.detach()


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", NAMES)
def test_a_wrapper_that_changes_nothing_changes_no_bit(name: str, implementation: str) -> None:
    model = model_of(name, implementation)
    before, functions, wrap = logits_of(model), dict(ALL_ATTENTION_FUNCTIONS), Wrap()
    with wrapped_attention(modules_of(model), wrap):
        inside = logits_of(model)
    assert len(wrap.calls) == len(attentions(model))
    assert torch.equal(inside, before)
    assert torch.equal(logits_of(model), before)
    assert len(wrap.calls) == len(attentions(model))
    assert dict(ALL_ATTENTION_FUNCTIONS) == functions
    assert model.config._attn_implementation == implementation


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_only_the_modules_that_were_named_are_wrapped(implementation: str) -> None:
    model, other = model_of("tiny-llama", implementation), model_of("tiny-mistral", implementation)
    before, others = logits_of(model), logits_of(other)
    wrap = Wrap(factor=2.0)
    with wrapped_attention(modules_of(model)[1:], wrap):
        assert not torch.equal(logits_of(model), before)
        assert len(wrap.calls) == 1
        assert torch.equal(logits_of(other), others)
        assert torch.equal(logits_of(copy.deepcopy(model)), before)  # a copy is an ordinary model
    assert torch.equal(logits_of(model), before)


def test_the_wrapper_that_came_last_is_called_first_and_a_replacement_goes_inside_all() -> None:
    model = model_of("tiny-llama")
    (module, *_), calls = modules_of(model), []
    with (
        wrapped_attention([module], Wrap("first", calls)),
        replaced_attention([module], Wrap("replacement", calls)),
        wrapped_attention([module], Wrap("last", calls)),
    ):
        model(tokens())
    assert calls == ["last", "first", "replacement"]


def test_wrappers_may_be_taken_off_in_any_order() -> None:
    model = model_of("tiny-llama")
    before, functions, calls = logits_of(model), dict(ALL_ATTENTION_FUNCTIONS), []
    stacks = [ExitStack() for _ in range(3)]
    for number, stack in enumerate(stacks):
        stack.enter_context(wrapped_attention(modules_of(model)[:1], Wrap(str(number), calls)))
    stacks[1].close()
    model(tokens())
    stacks[0].close()
    model(tokens())
    stacks[2].close()
    assert calls == ["2", "0", "2"]
    assert torch.equal(logits_of(model), before)
    assert dict(ALL_ATTENTION_FUNCTIONS) == functions


def test_an_error_inside_leaves_everything_as_it_was() -> None:
    model = model_of("tiny-llama")
    functions = dict(ALL_ATTENTION_FUNCTIONS)
    with pytest.raises(RuntimeError, match="mine"), wrapped_attention(modules_of(model), Wrap()):
        raise RuntimeError("mine")
    assert dict(ALL_ATTENTION_FUNCTIONS) == functions


def test_a_function_that_somebody_else_put_there_stays() -> None:
    model = model_of("tiny-llama")
    shared = ALL_ATTENTION_FUNCTIONS["sdpa"]
    before = logits_of(model)

    def theirs(*args: Any, **options: Any) -> Any:
        return shared(*args, **options)

    ALL_ATTENTION_FUNCTIONS["sdpa"] = theirs
    try:
        with wrapped_attention(modules_of(model), Wrap()):
            assert torch.equal(logits_of(model), before)
        assert ALL_ATTENTION_FUNCTIONS["sdpa"] is theirs
    finally:
        del ALL_ATTENTION_FUNCTIONS["sdpa"]
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is shared


def test_attention_of_an_unknown_kind_is_refused_in_words() -> None:
    with (
        pytest.raises(UserError, match="the attention of MultiheadAttention cannot be reached"),
        wrapped_attention([nn.MultiheadAttention(4, 2)], Wrap()),
    ):
        pytest.fail("entered")


def test_eager_attention_that_is_computed_in_another_way_is_refused_in_words() -> None:
    modules = modules_of(model_of("gpt2", "eager"))
    modules[1].reorder_and_upcast_attn = True  # type: ignore[assignment]
    with (
        pytest.raises(UserError, match=r"the attention of GPT2Attention cannot be reached.* choose attn_impl"),
        wrapped_attention(modules, Wrap()),
    ):
        pass


# --- logits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 6])
def test_a_part_of_the_queries_has_its_part_of_the_bias(rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 4, 6, 8, generator=generator), torch.randn(2, 2, 7, 8, generator=generator)
    options = {"scaling": 0.3, "softcap": 0.5, "position_bias": torch.randn(1, 4, rows, 7, generator=generator)}
    plain = query @ key.repeat_interleave(2, dim=1).transpose(-1, -2) * 0.3
    whole = 0.5 * (plain / 0.5).tanh() + options["position_bias"]
    assert torch.allclose(unmasked_logits(query, key, options), whole, atol=1e-6)
    assert torch.allclose(unmasked_logits(query[:, :, 2:5], key, options, 2), whole[:, :, 2:5], atol=1e-6)


def test_grouped_logits_are_those_of_repeated_keys() -> None:
    query, key = torch.randn(2, 6, 5, 4), torch.randn(2, 3, 7, 4)
    repeated = query @ key.repeat_interleave(2, dim=1).transpose(-1, -2)
    assert torch.allclose(grouped_logits(query, key, 0.3), repeated * 0.3, atol=1e-6)
    assert torch.allclose(grouped_logits(query, key, None), repeated / 2.0, atol=1e-6)


class Causal(nn.Module):
    is_causal = True


class Open(nn.Module):
    is_causal = False


def seen(module: nn.Module, mask: Tensor | None = None, length: int = 4, **options: Any) -> list[str]:
    """What the queries of the first row and head may look at, as one string a query."""
    masked = masked_logits(torch.zeros(2, 1, length, length), module, mask, options)
    return ["".join("x" if value == 0 else "." for value in row) for row in masked[0, 0].tolist()]


def test_without_a_mask_attention_is_causal_if_the_module_is() -> None:
    assert seen(Causal()) == ["x...", "xx..", "xxx.", "xxxx"]
    assert seen(Open()) == ["xxxx"] * 4
    assert seen(Causal(), is_causal=False) == ["xxxx"] * 4
    assert seen(Causal(), is_causal=None, sliding_window=2) == ["x...", "xx..", ".xx.", "..xx"]


def test_a_padding_mask_is_added_to_causality() -> None:
    padding = torch.tensor([[1, 1, 0, 1], [1, 1, 1, 1]])
    assert seen(Causal(), padding) == ["x...", "xx..", "xx..", "xx.x"]
    assert seen(Open(), padding) == ["xx.x"] * 4


def test_a_full_mask_counts_alone() -> None:
    mask = torch.eye(4, dtype=torch.bool).expand(2, 1, 4, 4)
    assert seen(Causal(), mask) == ["x...", ".x..", "..x.", "...x"]
    added = torch.where(mask, 0.0, torch.finfo(torch.float32).min)
    assert seen(Causal(), added) == ["x...", ".x..", "..x.", "...x"]


@pytest.mark.parametrize("mask", [None, torch.tril(torch.ones(2, 1, 4, 4)).bool(), torch.ones(2, 4)])
def test_some_of_the_queries_are_masked_as_all_are(mask: Tensor | None) -> None:
    logits = torch.randn(2, 3, 4, 4)
    whole = masked_logits(logits, Causal(), mask, {"sliding_window": 3})
    parts = [masked_logits(logits[:, :, [row]], Causal(), mask, {"sliding_window": 3}, row, 4) for row in range(4)]
    assert torch.equal(torch.cat(parts, dim=2), whole)


def test_a_mask_of_another_form_is_refused() -> None:
    with pytest.raises(TypeError, match="3 dimensions"):
        masked_logits(torch.zeros(1, 1, 2, 2), Causal(), torch.ones(1, 2, 2), {})
    blocks: Any = create_block_mask(lambda _row, _head, query, key: query >= key, None, None, 4, 4, device="cpu")
    with pytest.raises(TypeError, match="BlockMask, as of flex_attention"):
        masked_logits(torch.zeros(1, 1, 4, 4), Causal(), blocks, {})
