"""The weights that make a head's queries and keys, wherever an architecture keeps them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from rmetric.errors import UserError
from rmetric.training.models.structure import Attention, Projection, attentions


@dataclass(frozen=True)
class AttentionWeights:
    """How the weights of one layer are read."""

    layer: int
    query: Callable[[], Tensor]
    """Gives (query heads, features a head, inputs) as it is now."""
    key: Callable[[], Tensor]
    """Gives (key heads, features a head, inputs) as it is now."""


def attention_weights(model: nn.Module, needed_by: str) -> list[AttentionWeights]:
    """The weights of every attention of a model.

    Raises
    ------
    UserError
        If no attention is found, or weights are sharded over processes or quantised.
    """
    found = [_of(attention) for attention in attentions(model, needed_by)]
    for item in found:
        item.query(), item.key()  # a form that is not known is told at once
    return found


def _of(attention: Attention) -> AttentionWeights:
    query = partial(_by_head, attention.query, attention.heads, attention.head_size)
    key = partial(_by_head, attention.key, attention.key_value_heads, attention.head_size)
    return AttentionWeights(attention.layer, query, key)


@torch.no_grad()
def _by_head(projection: Projection, heads: int, size: int) -> Tensor:
    weight = whole_weight(projection.name, projection.module)
    rows = weight[projection.features]
    if rows.ndim != 2 or rows.shape[0] != heads * size or not rows.is_floating_point():
        raise UserError(
            f"the weight of {projection.name} has the shape {tuple(weight.shape)}, not {heads * size} rows of numbers "
            "(is it quantised?); leave this monitor out: mechanism=('update', ...)"
        )
    return rows.unflatten(0, (heads, size))


def whole_weight(name: str, module: nn.Module) -> Tensor:
    """The matrix (outputs, inputs) that a linear module multiplies with, low-rank adapters of peft included."""
    base = getattr(module, "base_layer", module)
    weight = base.weight
    if hasattr(weight, "to_local"):
        raise UserError(
            f"the weight of {name} is sharded over processes, and its spectrum needs all of it; "
            "leave this monitor out: mechanism=('update', ...)"
        )
    weight = weight.detach()
    if base is not module and not module.merged:
        for adapter in module.active_adapters:  # type: ignore[union-attr]
            if adapter in module.lora_A:  # type: ignore[operator]
                weight = weight + module.get_delta_weight(adapter).to(weight)  # type: ignore[operator]
    return weight.T if type(base).__name__ == "Conv1D" else weight
