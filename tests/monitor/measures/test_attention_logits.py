from __future__ import annotations

import logging
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rmetric.errors import UserError
from rmetric.live.injection.rounded_attention import RoundedAttention
from rmetric.monitor.measures import attention_logits
from rmetric.monitor.measures.attention_logits import AttentionLogits, largest_logit
from rmetric.network.attention import replaced_attention, wrapped_attention
from rmetric.network.structure import attentions
from tests.live.architectures import CAP, NAMES, inputs_of, logits_of, model_of, padded, tokens


def by_hand(model: nn.Module, mask: Tensor | None = None) -> float:
    """The same from the models' own eager attention: logits in front of the softmax are those of its probabilities."""
    largest = [-math.inf]

    def look(inner: Any, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any) -> Any:
        output, probabilities = inner(module, query, key, value, mask, **options)
        largest.append(logits_of(query, key, options["scaling"])[probabilities > 0].max().item())
        return output, probabilities

    with wrapped_attention([attention.module for attention in attentions(model)], look):
        model(tokens(), attention_mask=mask)
    return max(largest)


def collected(model: nn.Module, **options: int) -> Tensor | None:
    """What one pass in training shows."""
    logits = AttentionLogits(model, **options)
    model(tokens())
    largest = logits.collect()
    logits.close()
    return largest


@pytest.mark.parametrize("mask", [None, padded()], ids=["full", "padded"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_largest_logit_that_the_softmax_gets(name: str, implementation: str, mask: Tensor | None) -> None:
    expected = by_hand(model_of(name, "eager"), mask)
    model = model_of(name, implementation)
    before = model(tokens(), attention_mask=mask).logits
    logits = AttentionLogits(model)
    inside = model(tokens(), attention_mask=mask).logits
    largest = logits.collect()
    logits.close()
    assert largest.shape == ()
    assert largest.dtype == torch.float32
    assert not largest.requires_grad
    assert largest.item() == pytest.approx(expected, rel=1e-5)
    assert torch.equal(inside, before)


@pytest.mark.parametrize("chunk", [2 * 4 * 24 * 5, 2**24])
def test_a_capped_logit_is_the_one_behind_the_cap(chunk: int) -> None:
    model = model_of("gemma2", "eager")
    uncapped = by_hand(model)
    assert float(collected(model, chunk=chunk)) == pytest.approx(CAP * math.tanh(uncapped / CAP), rel=1e-5)
    assert uncapped > CAP


@pytest.mark.parametrize("place", ["encoder.layers.1.self_attn", "decoder.layers.2.encoder_attn"])
def test_the_largest_logit_of_any_stack_counts(place: str) -> None:
    model = model_of("bart")
    module, largest = model.model.get_submodule(place), []
    with torch.no_grad():
        module.q_proj.weight.mul_(1000.0)

    def look(inner: Any, module: Any, query: Tensor, key: Tensor, *rest: Any, **options: Any) -> Any:
        largest.append((query @ key.transpose(-1, -2) * options["scaling"]).max().item())
        return inner(module, query, key, *rest, **options)

    logits = AttentionLogits(model)
    with wrapped_attention([module], look):
        model(**inputs_of("bart"))
    assert float(logits.collect()) == pytest.approx(largest[0], rel=1e-5)
    logits.close()


@pytest.mark.parametrize(("query_at", "key_at", "expected"), [(20, 5, 6.0), (20, 4, 0.0), (20, 21, 0.0), (3, 3, 6.0)])
def test_a_key_counts_inside_the_window_and_not_ahead(query_at: int, key_at: int, expected: float) -> None:
    module = attentions(model_of("tiny-mistral"))[0].module
    query, key = torch.zeros(1, 4, 24, 16), torch.zeros(1, 2, 24, 16)
    query[0, 3, query_at, 0], key[0, 1, key_at, 0] = 4.0, 6.0
    options = {"scaling": 0.25, "sliding_window": 16}
    assert largest_logit(module, query, key, None, options, 2**24).item() == expected
    assert largest_logit(module, query, key, None, options, 7).item() == expected


def test_it_is_the_largest_of_all_passes_since_it_was_last_asked_for() -> None:
    model = model_of("tiny-llama")
    logits = AttentionLogits(model)
    assert logits.collect() is None
    batches = [tokens(), tokens().flip(0) // 2, tokens() * 0]
    each = []
    for batch in batches:
        model(batch)
        each.append(logits.collect())
    for batch in batches:
        model(batch)
    assert logits.collect() == max(value for value in each if value is not None)
    assert logits.collect() is None
    logits.close()


def test_validation_does_not_count() -> None:
    model = model_of("tiny-llama")
    logits = AttentionLogits(model)
    model.eval()(tokens())
    assert logits.collect() is None
    model.train()(tokens())
    assert logits.collect() is not None
    logits.close()


@pytest.mark.parametrize("chunk", [1, 2 * 4 * 24 * 5, 2**24])
def test_no_more_logits_are_in_memory_than_was_said(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    model, sizes = model_of("tiny-mistral"), []
    made = attention_logits.unmasked_logits

    def measured(*args: Any) -> Tensor:
        sizes.append(made(*args).numel())
        return made(*args)

    expected = collected(model)
    monkeypatch.setattr(attention_logits, "unmasked_logits", measured)
    assert float(collected(model, chunk=chunk)) == pytest.approx(float(expected))
    assert max(sizes) <= max(chunk, 2 * 4 * 24)  # one query of all rows and heads at least
    assert sum(sizes) == 2 * (2 * 4 * 24 * 24)  # each logit of both layers once


def test_a_logit_that_is_not_finite_is_infinite() -> None:
    for bad in (math.nan, math.inf):
        model = model_of("tiny-llama")
        with torch.no_grad():
            model.model.layers[0].self_attn.k_proj.weight[0, 0] = bad
        assert collected(model) == math.inf


def test_closing_takes_everything_off_and_may_be_repeated() -> None:
    model = model_of("tiny-llama")
    functions = dict(ALL_ATTENTION_FUNCTIONS)
    logits = AttentionLogits(model)
    logits.close()
    logits.close()
    model(tokens())
    assert logits.collect() is None
    assert dict(ALL_ATTENTION_FUNCTIONS) == functions


def test_nothing_waits_for_the_device() -> None:
    model = model_of("tiny-mistral")
    module = attentions(model)[0].module
    mask = torch.ones(2, 1, 24, 24).tril().bool()
    with FakeTensorMode() as mode:  # tensors without values: reading one raises
        query, key = torch.zeros(2, 4, 24, 16), torch.zeros(2, 2, 24, 16)
        with pytest.raises(DataDependentOutputException):
            query.max().item()
        for given in (None, mode.from_tensor(mask)):
            largest = largest_logit(module, query, key, given, {"scaling": 0.25, "sliding_window": 16}, 2**10)
            assert largest.shape == ()


def test_what_cannot_be_watched_does_not_break_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = model_of("tiny-llama")
    before = model(tokens()).logits

    def fail(*args: Any) -> Tensor:
        raise TypeError("mine")

    monkeypatch.setattr(attention_logits, "unmasked_logits", fail)
    logits = AttentionLogits(model)
    with caplog.at_level(logging.WARNING, logger="rmetric"):
        assert torch.equal(model(tokens()).logits, before)
        assert torch.equal(model(tokens()).logits, before)
    assert [record.message for record in caplog.records] == [
        "the attention logits are no longer looked at: TypeError: mine"
    ]
    assert logits.collect() is None
    logits.close()


@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable. is deprecated:FutureWarning")
def test_a_pass_that_is_computed_again_for_the_gradient_changes_nothing() -> None:
    model = model_of("tiny-llama")
    logits = AttentionLogits(model)
    model(tokens(), labels=tokens()).loss.backward()
    expected = logits.collect()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model(tokens(), labels=tokens()).loss.backward()
    assert logits.collect() == expected
    logits.close()


def test_attention_that_is_replaced_is_watched_all_the_same() -> None:
    model = model_of("tiny-llama")
    modules = [attention.module for attention in attentions(model)]
    logits = AttentionLogits(model)
    model(tokens())
    expected = logits.collect()
    with replaced_attention(modules, RoundedAttention(rounding=None)):
        model(tokens())
    assert float(logits.collect()) == pytest.approx(float(expected), rel=1e-5)
    logits.close()


def test_a_model_without_attention_is_refused_in_words() -> None:
    with pytest.raises(UserError, match="the maximum of the attention logits needs attention"):
        AttentionLogits(nn.Linear(2, 2))
