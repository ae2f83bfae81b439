"""The sample of attention rows, against the probabilities of the models' own eager attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.t5.modeling_t5 import T5Attention

from rmetric.errors import UserError
from rmetric.monitor.mechanism import AttentionRows, MonitorResult, attention
from rmetric.network.attention import wrapped_attention
from rmetric.network.structure import attentions
from tests.live.architectures import CAP, NAMES, STACKED, inputs_of, logits_of, model_of, padded, tokens
from tests.monitor.mechanism.common import measured, seen_in


def by_hand(model: nn.Module, mask: Tensor | None) -> dict[str, list[Any]]:
    """Layer by layer, over queries 8 to 23 of both rows: the last 16 of 24."""
    found: dict[str, list[Any]] = {"entropy": [], "logit_max": [], "query_norm": [], "key_norm": []}

    def look(inner: Any, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any) -> Any:
        output, probabilities = inner(module, query, key, value, mask, **options)
        rows = probabilities[:, :, 8:].detach().double()
        keys = (rows > 0).sum(dim=-1)
        entropy = -torch.where(rows > 0, rows * rows.log(), 0.0).sum(dim=-1) / keys.log()
        logits = logits_of(query[:, :, 8:], key, options["scaling"]).where(rows > 0, -math.inf)
        found["entropy"].append(entropy.where(keys > 1, math.nan).nanmean(dim=(0, 2)).tolist())
        found["logit_max"].append(logits.amax(dim=(0, 2, 3)).tolist())
        found["query_norm"].append(query[:, :, 8:].norm(dim=-1).amax(dim=(0, 2)).tolist())
        found["key_norm"].append(key.norm(dim=-1).amax(dim=(0, 2)).tolist())
        return output, probabilities

    with wrapped_attention([item.module for item in attentions(model)], look):
        model(tokens(), attention_mask=mask)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mask", [None, padded()], ids=["full", "padded"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", NAMES)
def test_the_sample_is_of_the_models_own_probabilities(name: str, implementation: str, mask: Tensor | None) -> None:
    expected = by_hand(model_of(name, "eager"), mask)
    model = model_of(name, implementation)
    before = model(tokens(), attention_mask=mask).logits
    monitor = AttentionRows(model)
    monitor.arm()
    inside = model(tokens(), attention_mask=mask).logits
    seen = measured(monitor)
    assert torch.equal(inside, before)
    for key, values in expected.items():
        assert seen.details[key] == pytest.approx(np.array(values), rel=1e-4, abs=1e-6), key
    assert seen.values["attention_entropy"] == pytest.approx(np.min(expected["entropy"]), rel=1e-4)
    assert seen.values["attention_logit_max"] == pytest.approx(np.max(expected["logit_max"]), rel=1e-4)
    assert seen.values["query_norm"] == pytest.approx(np.max(expected["query_norm"]), rel=1e-4)
    layer, head = np.unravel_index(np.argmin(expected["entropy"]), np.shape(expected["entropy"]))
    layers = [item.layer for item in attentions(model)]
    assert seen.worst["attention_entropy"] == f"layer {layers[layer]}, head {head}"


def test_a_model_in_double_precision_is_sampled() -> None:
    expected = by_hand(model_of("tiny-llama", "eager").double(), None)
    model = model_of("tiny-llama").double()
    seen = seen_in(AttentionRows(model), lambda: model(tokens()))
    for key, values in expected.items():
        assert seen.details[key] == pytest.approx(np.array(values), rel=1e-5), key


def entropies(probabilities: Tensor) -> list[float]:
    """Of each head over the last 16 queries, from rows of probabilities, (B, H, T, S)."""
    rows = probabilities[:, :, -16:].detach().double()
    keys = (rows > 0).sum(dim=-1)
    entropy = torch.special.entr(rows).sum(dim=-1) / keys.log()
    return entropy.where(keys > 1, math.nan).nanmean(dim=(0, 2)).tolist()


def named_probabilities(name: str, output: Any) -> dict[str, Tensor]:
    """The probabilities that a model hands out itself, by the name of the attention."""
    if name == "clip":
        texts, images = output.text_model_output, output.vision_model_output
        stacks = {"text_model.encoder.layers.{}.self_attn": texts.attentions}
        stacks |= {"vision_model.encoder.layers.{}.self_attn": images.attentions}
    else:
        stacks = {"model.encoder.layers.{}.self_attn": output.encoder_attentions}
        stacks |= {"model.decoder.layers.{}.self_attn": output.decoder_attentions}
        stacks |= {"model.decoder.layers.{}.encoder_attn": output.cross_attentions}
    return {place.format(index): rows for place, found in stacks.items() for index, rows in enumerate(found)}


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("name", STACKED)
def test_every_stack_is_sampled(name: str, implementation: str) -> None:
    whole = model_of(name, "eager")(**inputs_of(name), output_attentions=True)
    model = model_of(name, implementation)
    seen = seen_in(AttentionRows(model), lambda: model(**inputs_of(name)))
    expected = {place: entropies(rows) for place, rows in named_probabilities(name, whole).items()}
    sampled = dict(zip(seen.details["layers"], seen.details["entropy"], strict=True))
    assert {place: row.tolist() for place, row in sampled.items()} == {
        place: pytest.approx(row, rel=1e-4) for place, row in expected.items()
    }
    place, row = min(expected.items(), key=lambda item: min(item[1]))
    assert seen.worst["attention_entropy"] == f"layer {place}, head {np.argmin(row)}"


def test_attention_that_was_not_called_is_left_out_of_the_sample() -> None:
    model = model_of("clip")
    seen = seen_in(AttentionRows(model), lambda: model.get_text_features(input_ids=tokens()))
    assert seen.details["layers"] == [f"text_model.encoder.layers.{index}.self_attn" for index in range(2)]


def sampled(model: nn.Module, mask: Tensor | None) -> tuple[MonitorResult, Sequence[Tensor]]:
    """What the monitor sees of a forward pass, and the model's own attention in it."""
    monitor = AttentionRows(model)
    monitor.arm()
    output = model(tokens(), attention_mask=mask, output_attentions=True)
    return measured(monitor), output.attentions


@pytest.mark.parametrize("mask", [None, padded()], ids=["full", "padded"])
def test_capped_logits_are_those_of_the_softmax(mask: Tensor | None) -> None:
    model = model_of("gemma2", "eager")
    seen, own = sampled(model, mask)
    uncapped = by_hand(model, mask)["logit_max"]
    assert seen.details["entropy"] == pytest.approx(np.array([*map(entropies, own)]), rel=1e-4)
    assert seen.details["logit_max"] == pytest.approx(CAP * np.tanh(np.array(uncapped) / CAP), rel=1e-4)
    assert np.max(uncapped) > CAP


@pytest.mark.parametrize("mask", [None, padded()], ids=["full", "padded"])
def test_a_sink_counts_as_a_key(mask: Tensor | None) -> None:
    model = model_of("gpt-oss", "eager")
    seen, own = sampled(model, mask)
    whole = [torch.cat([rows, 1.0 - rows.sum(dim=-1, keepdim=True)], dim=-1) for rows in own]
    assert seen.details["entropy"] == pytest.approx(np.array([*map(entropies, whole)]), rel=1e-4)
    assert seen.details["logit_max"] == pytest.approx(np.array(by_hand(model, mask)["logit_max"]), rel=1e-4)


@pytest.mark.parametrize("length", [24, 12])
def test_a_bias_of_positions_is_part_of_the_logits(length: int) -> None:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}
    model = T5ForConditionalGeneration(T5Config(vocab_size=256, decoder_start_token_id=0, **sizes))
    model.set_attn_implementation("eager")
    samples, expected = [], []

    def look(inner: Any, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any) -> Any:
        output, probabilities = inner(module, query, key, value, mask, **options)
        samples.append(attention.sample_of(module, query, key, mask, options)["entropy"].tolist())
        expected.append(entropies(probabilities))
        assert options["position_bias"] is not None
        return output, probabilities

    modules = [module for module in model.modules() if isinstance(module, T5Attention)]
    with torch.no_grad(), wrapped_attention(modules, look):
        for module in modules:
            if module.has_relative_attention_bias:
                module.relative_attention_bias.weight.mul_(30.0)
        model.train()(input_ids=tokens(2, length), labels=tokens(2, length))
    assert len(samples) == 6  # two of the encoder, four of the decoder
    assert samples == [pytest.approx(row, rel=1e-4) for row in expected]


def test_short_sequences_are_sampled_whole_and_one_token_has_no_entropy() -> None:
    model = model_of("tiny-llama")
    monitor = AttentionRows(model)
    seen = seen_in(monitor, lambda: model(tokens(2, 3)))
    assert 0.0 < seen.values["attention_entropy"] <= 1.0
    alone = seen_in(monitor, lambda: model(tokens(2, 1)))
    assert {*alone.values} == {"query_norm", "key_norm", "attention_logit_max"}


def test_only_the_first_pass_in_training_mode_is_looked_at() -> None:
    model = model_of("tiny-llama")
    monitor = AttentionRows(model)
    monitor.arm()
    model.eval()(tokens() * 0)
    model.train()(tokens())
    model(tokens() * 0)
    seen = measured(monitor)
    assert seen_in(monitor, lambda: model(tokens())).values == seen.values
    monitor.arm()
    assert monitor.take() is None  # no pass at all
    monitor.disarm()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_not_finite_are_told_where_they_are(bad: float) -> None:
    model = model_of("tiny-llama")
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight[16:32] = bad  # head 1
    seen = seen_in(AttentionRows(model), lambda: model(tokens()))
    for name in ("attention_entropy", "query_norm"):
        assert not math.isfinite(seen.values[name])
        assert seen.worst[name] == "layer 1, head 1"


def test_between_the_samples_the_tables_of_transformers_are_as_they_were() -> None:
    model = model_of("tiny-llama")
    functions = dict(ALL_ATTENTION_FUNCTIONS)
    monitor = AttentionRows(model)
    assert dict(ALL_ATTENTION_FUNCTIONS) == functions
    monitor.arm()
    assert dict(ALL_ATTENTION_FUNCTIONS) != functions
    monitor.disarm()
    monitor.disarm()
    assert dict(ALL_ATTENTION_FUNCTIONS) == functions


def test_an_error_in_the_look_is_told_when_the_step_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("tiny-llama")
    before = model(tokens()).logits

    def fail(*args: Any) -> Tensor:
        raise TypeError("mine")

    monkeypatch.setattr(attention, "unmasked_logits", fail)
    monitor = AttentionRows(model)
    monitor.arm()
    assert torch.equal(model(tokens()).logits, before)
    with pytest.raises(TypeError, match="mine"):
        monitor.take()
    monitor.disarm()


def test_a_model_without_attention_is_refused_in_words() -> None:
    with pytest.raises(UserError, match="the monitor of attention rows needs attention"):
        AttentionRows(nn.Linear(2, 2))
