"""One tiny model of each architecture whose parts must be found, seeded; and what goes into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    CLIPConfig,
    CLIPModel,
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GptOssConfig,
    GptOssForCausalLM,
    Lfm2Config,
    Lfm2ForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from rmetric.live.models import TINY_MODELS, tiny_model
from rmetric.network.structure import attentions

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


def _bart() -> PreTrainedModel:
    """Two layers in the encoder, three in the decoder."""
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    config = BartConfig(vocab_size=VOCABULARY, max_position_embeddings=64, dropout=0.0, **sizes, **heads)
    return BartForConditionalGeneration(config)


def _whisper() -> PreTrainedModel:
    """Two layers with two heads in the encoder, three with four in the decoder."""
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 4}
    sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    lengths = {"max_source_positions": 20, "max_target_positions": 64, "num_mel_bins": 8}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = WhisperConfig(vocab_size=VOCABULARY, dropout=0.0, **sizes, **heads, **lengths, **special)
    return WhisperForConditionalGeneration(config)


def _clip() -> PreTrainedModel:
    """A tower of two layers with four heads for texts, and one of three with six for images."""
    text = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    image = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "image_size": 16, "patch_size": 4}
    rest = {"intermediate_size": 48, "projection_dim": 16}
    special = {"bos_token_id": 1, "eos_token_id": 2}
    return CLIPModel(CLIPConfig(text_config=text | rest | special, vision_config=image | rest, projection_dim=16))


_LATENT: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "q_lora_rank": 16}
_LATENT |= {"num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 16, "qk_rope_head_dim": 8}
_LATENT |= {"qk_nope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1}
_LATENT |= {"topk_group": 1, "moe_intermediate_size": 16, "first_k_dense_replace": 1, "vocab_size": VOCABULARY}


def _deepseek_2() -> PreTrainedModel:
    return DeepseekV2ForCausalLM(DeepseekV2Config(**_LATENT, **NO_SPECIAL))


def _deepseek_3() -> PreTrainedModel:
    """Its experts are chosen by more than their logits: a bias that no gradient reaches is added."""
    model = DeepseekV3ForCausalLM(DeepseekV3Config(**_LATENT, **NO_SPECIAL))
    for layer in model.model.layers[1:]:
        layer.mlp.gate.e_score_correction_bias.copy_(torch.tensor([0.3, 0.0, 0.0, -0.3]))
    return model


def _llama4() -> PreTrainedModel:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "intermediate_size_mlp": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "attention_chunk_size": 32}
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "interleave_moe_layer_step": 1}
    return Llama4ForCausalLM(Llama4TextConfig(vocab_size=VOCABULARY, **sizes, **heads, **experts, **NO_SPECIAL))


ROUTED: dict[str, Callable[[], PreTrainedModel]] = {
    "deepseek-2": _deepseek_2,
    "deepseek-3": _deepseek_3,
    "llama-4": _llama4,
}
"""Mixtures of experts that differ from the others by their attention (the first layer is dense) or by their router."""
CAP = 0.2
_SMALL: dict[str, Any] = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
_SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 16}


def _gemma2() -> PreTrainedModel:
    return Gemma2ForCausalLM(Gemma2Config(attn_logit_softcapping=CAP, **_SMALL, **NO_SPECIAL))


def _gpt_oss() -> PreTrainedModel:
    """Each head has a sink, a logit that takes its part of the probability to no key."""
    experts = {
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    }
    model = GptOssForCausalLM(GptOssConfig(**experts, **_SMALL, **NO_SPECIAL))
    for layer in model.model.layers:
        layer.self_attn.sinks.data.copy_(torch.tensor([-1.0, 0.0, 1.0, 2.0]))
    return model


SOFTENED: dict[str, Callable[[], PreTrainedModel]] = {"gemma2": _gemma2, "gpt-oss": _gpt_oss}
"""Models that make something of their logits before the softmax; eager attention alone can do that here."""
STACKED: dict[str, Callable[[], PreTrainedModel]] = {"bart": _bart, "whisper": _whisper, "clip": _clip}
"""Models with several stacks of layers."""
OTHERS: dict[str, Callable[[], PreTrainedModel]] = {"gpt2": _gpt2, "lfm2": _lfm2, "qwen-moe": _qwen_moe}
NAMES = [*TINY_MODELS, *OTHERS]
MOES = ["tiny-moe", "qwen-moe"]


def model_of(name: str, attention: str = "sdpa") -> PreTrainedModel:
    """A model in training mode; the same weights every time, larger than usual so that attention is not even."""
    built = OTHERS | STACKED | SOFTENED | ROUTED
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = built[name]() if name in built else tiny_model(name, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter *= 5.0
    model.set_attn_implementation(attention)
    return model.train()


def modules_of(model: nn.Module) -> list[nn.Module]:
    """The attentions of a model, first layer first."""
    return [attention.module for attention in attentions(model)]


def tokens(rows: int = 2, length: int = 24) -> Tensor:
    """Token ids, the same every time; longer than tiny-mistral's window of 16."""
    return torch.randint(VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(1))


def inputs_of(name: str) -> dict[str, Tensor]:
    """What goes into a model with several stacks, the same every time."""
    generator = torch.Generator().manual_seed(2)
    if name == "whisper":
        return {"input_features": torch.randn(2, 8, 40, generator=generator), "decoder_input_ids": tokens()}
    images = {"pixel_values": torch.randn(2, 3, 16, 16, generator=generator)}
    return {"input_ids": tokens(), **(images if name == "clip" else {})}


def padded() -> Tensor:
    """A padding mask: the last row has its last third left out."""
    mask = torch.ones(2, 24, dtype=torch.long)
    mask[-1, -8:] = 0
    return mask


def logits_of(query: Tensor, key: Tensor, scaling: float) -> Tensor:
    """Attention logits of queries, (batch, heads, length, size), by hand; keys may be shared by several heads."""
    repeated = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    return query @ repeated.transpose(-1, -2) * scaling
