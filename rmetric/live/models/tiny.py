"""Tiny, randomly initialised models of real architectures: transformers' own code, small enough for one core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rmetric.errors import UserError
from rmetric.live.corpus import BYTES


@dataclass(frozen=True, kw_only=True)
class TinyShape:
    """The size of a tiny model; the default has 0.13 million parameters."""

    hidden: int = 64
    layers: int = 2
    heads: int = 4
    key_value_heads: int = 2
    feed_forward: int = 192
    vocabulary: int = BYTES
    context: int = 512

    @property
    def common(self) -> dict[str, Any]:
        """Name of it in all configurations of transformers."""
        return {
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.feed_forward,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.key_value_heads,
            "max_position_embeddings": self.context,
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None,
            "use_cache": False,
        }


def _llama(shape: TinyShape) -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**shape.common))


def _mistral(shape: TinyShape) -> PreTrainedModel:
    return MistralForCausalLM(MistralConfig(sliding_window=16, **shape.common))


def _moe(shape: TinyShape) -> PreTrainedModel:
    experts: dict[str, Any] = {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "output_router_logits": True,
        "sliding_window": None,
    }
    return MixtralForCausalLM(
        MixtralConfig(**{**shape.common, "intermediate_size": shape.feed_forward // 2}, **experts)
    )


def _qwen(shape: TinyShape) -> PreTrainedModel:
    head = shape.hidden // shape.heads
    return Qwen3ForCausalLM(Qwen3Config(head_dim=head, tie_word_embeddings=True, **shape.common))


TINY_MODELS: dict[str, Callable[[TinyShape], PreTrainedModel]] = {
    "tiny-llama": _llama,
    "tiny-mistral": _mistral,
    "tiny-moe": _moe,
    "tiny-qwen": _qwen,
}
"""Name on the command line → how it is built: Llama; Mistral with a sliding window of 16, shorter than the context;
Mixtral with 4 experts, 2 a token; Qwen 3 (normalised queries and keys, tied embeddings)."""


def tiny_model(name: str, *, seed: int, **shape: int) -> PreTrainedModel:
    """A tiny model with random weights that depend on ``seed`` alone; the global random state is left as it is.

    ``shape``: fields of :class:`TinyShape` that differ from the default.
    """
    if name not in TINY_MODELS:
        raise UserError(f"unknown tiny model {name!r}; choose one of {', '.join(TINY_MODELS)}")
    unknown = {*shape} - {item.name for item in fields(TinyShape)}
    if unknown:
        raise ValueError(f"a tiny model has no {sorted(unknown)}")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed the devices as well
        model = TINY_MODELS[name](TinyShape(**shape))
    model.config.name_or_path = name  # what messages call it
    return model
