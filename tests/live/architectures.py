"""One tiny model of each architecture whose parts must be found, seeded; and what goes into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Lfm2Config,
    Lfm2ForCausalLM,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from rmetric.live.models import TINY_MODELS, tiny_model

VOCABULARY = 256
NO_SPECIAL: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "use_cache": False}


def _gpt2() -> PreTrainedModel:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    dropout = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **sizes, **dropout, **NO_SPECIAL))


def _lfm2() -> PreTrainedModel:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    kinds = ["conv", "full_attention", "conv"]
    config = Lfm2Config(vocab_size=VOCABULARY, num_hidden_layers=3, layer_types=kinds, **sizes, **NO_SPECIAL)
    return Lfm2ForCausalLM(config)


def _qwen_moe() -> PreTrainedModel:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "moe_intermediate_size": 16, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    experts = {"num_experts": 4, "num_experts_per_tok": 2}
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(vocab_size=VOCABULARY, **sizes, **heads, **experts, **NO_SPECIAL))


OTHERS: dict[str, Callable[[], PreTrainedModel]] = {"gpt2": _gpt2, "lfm2": _lfm2, "qwen-moe": _qwen_moe}
NAMES = [*TINY_MODELS, *OTHERS]
MOES = ["tiny-moe", "qwen-moe"]


def model_of(name: str, attention: str = "sdpa") -> PreTrainedModel:
    """A model in training mode; the same weights every time, larger than usual so that attention is not even."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = OTHERS[name]() if name in OTHERS else tiny_model(name, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter *= 5.0
    model.set_attn_implementation(attention)
    return model.train()


def tokens(rows: int = 2, length: int = 24) -> Tensor:
    """Token ids, the same every time; longer than tiny-mistral's window of 16."""
    return torch.randint(VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(1))


def padded(rows: int = 2, length: int = 24) -> Tensor:
    """A padding mask: the last row has its last third left out."""
    mask = torch.ones(rows, length, dtype=torch.long)
    mask[-1, -length // 3 :] = 0
    return mask
