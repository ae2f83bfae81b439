"""Shapes of published models: enough to build one with random weights, and to say what training it needs, offline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rmetric.registry import Registry

SHAPES: Registry[Shape] = Registry("model shape")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One published model without its weights."""

    name: str
    """Short name: the last part of the hub's, in small letters."""
    hub_name: str
    """Name of the weights on the Hugging Face Hub."""
    parameters: int
    """Parameters, shared ones counted once. A test builds the model without memory and counts."""
    layers: int
    hidden: int
    """Width of the residual stream."""
    feed_forward: int
    """Inner width of the feed-forward network."""
    vocabulary: int
    model_type: str
    """transformers' name of the architecture."""
    config: Mapping[str, Any]
    """Further entries of transformers' configuration of the model, as published."""
    source: str


def shape_named(name: str) -> Shape:
    """The shape of ``Qwen/Qwen2.5-3B`` or ``qwen2.5-3b``; raises :class:`~rmetric.errors.UserError` when unknown."""
    return SHAPES[name.rpartition("/")[2].casefold()]


_QWEN_3B = {
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32_768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "tie_word_embeddings": True,
}
_LLAMA_1B = {
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    "tie_word_embeddings": True,
}
_QWEN3_600M = {
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40_960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1_000_000.0,
    "tie_word_embeddings": True,
}
_LFM2_ATTENTION = (2, 5, 8, 10, 12, 14)
"""Blocks of LFM2 that are attention; the other ten are short convolutions."""
_LFM2_700M = {
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "max_position_embeddings": 128_000,
    "norm_eps": 1e-5,
    "rope_theta": 1_000_000.0,
    "block_auto_adjust_ff_dim": False,
    "layer_types": ["full_attention" if block in _LFM2_ATTENTION else "conv" for block in range(16)],
}

for _shape in (
    Shape(
        name="qwen2.5-3b",
        hub_name="Qwen/Qwen2.5-3B",
        parameters=3_085_938_688,
        layers=36,
        hidden=2048,
        feed_forward=11_008,
        vocabulary=151_936,
        model_type="qwen2",
        config=_QWEN_3B,
        source="config.json of Qwen/Qwen2.5-3B; 3.09 B parameters: Qwen2.5 Technical Report, arXiv 2412.15115",
    ),
    Shape(
        name="llama-3.2-1b",
        hub_name="meta-llama/Llama-3.2-1B",
        parameters=1_235_814_400,
        layers=16,
        hidden=2048,
        feed_forward=8192,
        vocabulary=128_256,
        model_type="llama",
        config=_LLAMA_1B,
        source="config.json of meta-llama/Llama-3.2-1B; 1.23 B parameters: its model card",
    ),
    Shape(
        name="gpt2-large",
        hub_name="openai-community/gpt2-large",
        parameters=774_030_080,
        layers=36,
        hidden=1280,
        feed_forward=5120,
        vocabulary=50_257,
        model_type="gpt2",
        config={"n_positions": 1024, "n_head": 20},
        source="config.json of openai-community/gpt2-large; 774 M parameters: its model card",
    ),
    Shape(
        name="qwen3-0.6b",
        hub_name="Qwen/Qwen3-0.6B",
        parameters=596_049_920,
        layers=28,
        hidden=1024,
        feed_forward=3072,
        vocabulary=151_936,
        model_type="qwen3",
        config=_QWEN3_600M,
        source="config.json of Qwen/Qwen3-0.6B; 0.6 B parameters: Qwen3 Technical Report, arXiv 2505.09388, Table 1",
    ),
    Shape(
        name="lfm2-700m",
        hub_name="LiquidAI/LFM2-700M",
        parameters=742_489_344,
        layers=16,
        hidden=1536,
        feed_forward=6912,
        vocabulary=65_536,
        model_type="lfm2",
        config=_LFM2_700M,
        source="config.json of LiquidAI/LFM2-700M (its width 10240 is adjusted to 6912); LFM2, arXiv 2511.23404",
    ),
):
    SHAPES.add(_shape.name, _shape)
