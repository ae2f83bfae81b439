"""Measure the spectrum of the updates of the bilinear form of queries and keys, head by head."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.errors import UserError
from rmetric.monitor.mechanism.base import (
    DeviceArrays,
    HostArrays,
    MechanismMonitor,
    MonitorResult,
    Task,
    by_layer,
    detached_copy,
    layer_and_head,
    worst_of_each,
)
from rmetric.monitor.tensors import on_cpu
from rmetric.network.structure import Projection, attentions, is_conv1d

_LEAVE_OUT = "leave this monitor out: mechanism=('update', ...)"


@torch.no_grad()
def _by_head(projection: Projection, heads: int, size: int) -> Tensor:
    """Weights of a projection as they are now, (heads, features a head, inputs)."""
    weight = _whole_weight(projection.name, projection.module)
    rows = weight[projection.features]
    if rows.ndim != 2 or rows.shape[0] != heads * size or not rows.is_floating_point():
        raise UserError(
            f"the weight of {projection.name} has the shape {tuple(weight.shape)}, not {heads * size} rows of numbers "
            f"(is it quantised, or does it make a gate as well?); {_LEAVE_OUT}"
        )
    return rows.reshape(heads, size, -1)


def _whole_weight(name: str, module: nn.Module) -> Tensor:
    """Matrix (outputs, inputs) that a linear module multiplies with, low-rank adapters of peft included."""
    base = getattr(module, "base_layer", module)
    weight = getattr(base, "weight", None)
    if not isinstance(weight, Tensor):
        raise UserError(f"{name} has no weight (is it quantised?); {_LEAVE_OUT}")
    if hasattr(weight, "to_local"):
        raise UserError(
            f"the weight of {name} is sharded over processes, and its spectrum needs all of it; {_LEAVE_OUT}"
        )
    weight = weight.detach()
    if base is not module and not getattr(module, "merged", False):
        for change in _low_rank_changes(name, module):
            weight = weight + change.to(weight)
    return weight.T if is_conv1d(module) else weight


def _low_rank_changes(name: str, module: Any) -> list[Tensor]:
    """Changes of a weight by the adapters of peft that are in use."""
    if not hasattr(module, "lora_A"):
        raise UserError(f"{name} is adapted by {type(module).__name__}, which is no low-rank sum; {_LEAVE_OUT}")
    adapters = [adapter for adapter in module.active_adapters if adapter in module.lora_A]
    variants = {*module.lora_magnitude_vector, *getattr(module, "lora_variant", ())}  # DoRA; others, from peft 0.16 on
    if not variants.isdisjoint(adapters):
        raise UserError(f"{name} is adapted by a variant of LoRA (DoRA?), which is no low-rank sum; {_LEAVE_OUT}")
    return [module.get_delta_weight(adapter) for adapter in adapters]


@dataclass(frozen=True)
class QkWeights:
    """The query and key weights of one layer's heads. Shapes: H query heads, K key heads, D features a head, d inputs.

    Query head h meets key head ``h // (H / K)``.
    """

    layer: int | str
    """Its number or name, as the log is to have it."""
    query: Tensor
    """(H, D, d)."""
    key: Tensor
    """(K, D, d)."""


class QkSpectral(MechanismMonitor):
    """Spectral entropy, effective rank and spectral norm of the update of W = W_QᵀW_K over the last stride of steps.

    With W_Q → W_Q + A and W_K → W_K + B the update of a head is ΔW = AᵀW_K + W_QᵀB + AᵀB; without the last term it is
    the first-order update. Of its singular values s, with p_i = s_i² / Σ s_j², are made

    - spectral entropy −Σ p_i ln p_i / ln r in [0, 1], with r = min(2D, d), the largest rank that ΔW can have;
    - effective rank exp(−Σ p_i ln p_i) in [1, r];
    - spectral norm max s_i.

    The values are those of the full update: ``qk_entropy`` and ``qk_effective_rank`` the smallest, ``qk_spectral_norm``
    the largest over all heads. Both kinds stand in the details. A head whose weights did not change has no entropy.

    **Source:** Huang et al. 2026, arXiv 2606.28116; the thin form is worked out here.
    **Deviation:** the weights alone are looked at: biases, rotary embeddings and norms of queries and keys, which also
    enter a logit, are not. The entropy is divided by the logarithm of the largest possible rank.

    Parameters
    ----------
    model
        A transformers model with separate or fused projections, or any module if ``weights`` is given.
    weights
        From the model to its query and key weights as they are now, one item a layer; ``None``: found by itself.

    Raises
    ------
    UserError
        If the model's attention is of no known form, or its weights are sharded, quantised, or adapted in another way
        than by low-rank sums.
    """

    name: ClassVar[str] = "qk_spectral"
    measures: ClassVar[tuple[str, ...]] = ("qk_entropy", "qk_effective_rank", "qk_spectral_norm")

    def __init__(self, model: nn.Module, *, weights: Callable[[nn.Module], Sequence[QkWeights]] | None = None) -> None:
        self._model = model
        self._weights = weights or _weights_of(model)
        self._before: list[QkWeights] = []

    def take(self) -> Task | None:
        now = [
            QkWeights(item.layer, detached_copy(item.query), detached_copy(item.key))
            for item in self._weights(self._model)
        ]
        before, self._before = self._before, now
        return (lambda: _spectra(before, now)) if before else None

    def summarise(self, found: HostArrays) -> MonitorResult:
        layers = [item.layer for item in self._before]
        heads = [len(item.query) for item in self._before]
        place = layer_and_head(layers, heads)
        unchanged = found["spectral_norm"] == 0
        measured = {
            "qk_spectral_norm": (found["spectral_norm"], place),
            "qk_entropy": (np.ma.array(found["entropy"], mask=unchanged), place),
            "qk_effective_rank": (np.ma.array(found["effective_rank"], mask=unchanged), place),
        }
        details = {name: by_layer(array, heads) for name, array in found.items()}
        return worst_of_each(measured, {"layers": layers, **details})

    def state_dict(self) -> dict[str, Any]:
        return {"before": [(item.layer, on_cpu(item.query), on_cpu(item.key)) for item in self._before]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._before = [QkWeights(*item) for item in state["before"]]


@torch.no_grad()
def _spectra(before: Sequence[QkWeights], now: Sequence[QkWeights]) -> DeviceArrays:
    """Every measurement of every head, each of shape (heads of all layers,)."""
    rows: dict[str, list[Tensor]] = {}
    for old, new in zip(before, now, strict=True):
        full, first_order = update_singular_values(old, new)
        for prefix, values in (("", full), ("first_order_", first_order)):
            for name, row in describe(values).items():
                rows.setdefault(prefix + name, []).append(row)
    return {name: torch.cat([row.to(parts[0].device) for row in parts]) for name, parts in rows.items()}


def update_singular_values(before: QkWeights, now: QkWeights) -> tuple[Tensor, Tensor]:
    """Singular values of the full and of the first-order update of each head, each of shape (H, min(2D, d)).

    ΔW = L Rᵀ with L = [Aᵀ, W_Qᵀ] and R = [(W_K + B)ᵀ, Bᵀ] (first order: W_Kᵀ for the first half of R): both are
    d × 2D. Thin factorisations L = Q_L T_L and R = Q_R T_R leave the singular values to T_L T_Rᵀ, at most 2D × 2D.
    Nothing d × d is made. Small changes meet large weights in every product, and never a large one another, so that
    nothing cancels. A head with a number that is not finite has NaN. Weights are taken in single precision at least.
    """
    query, key, query_now, key_now = _comparable(before.query, before.key, now.query, now.key)
    change_q, change_k = query_now - query, key_now - key
    left = _triangle(change_q, query)
    right = torch.stack([_triangle(key_now, change_k), _triangle(key, change_k)])
    right = right.repeat_interleave(query.shape[0] // key.shape[0], dim=1)
    core = left @ right.transpose(-1, -2)  # (2, H, r, r)
    broken = ~core.isfinite().all(dim=-1).all(dim=-1)  # the decomposition would raise
    values = torch.linalg.svdvals(core.masked_fill(broken[..., None, None], 0.0))
    full, first_order = values.masked_fill(broken[..., None], torch.nan)
    return full, first_order


def describe(singular_values: Tensor) -> dict[str, Tensor]:
    """Entropy, effective rank and spectral norm of spectra (..., r), each of shape (...).

    All singular values 0: entropy and effective rank are NaN.
    """
    largest = singular_values.amax(dim=-1)
    scaled = singular_values / largest[..., None]  # squares of small ones would underflow
    squares = scaled.square()
    shares = squares / squares.sum(dim=-1, keepdim=True)
    nats = torch.special.entr(shares).sum(dim=-1)
    most = math.log(singular_values.shape[-1])
    return {"entropy": nats / most, "effective_rank": nats.exp(), "spectral_norm": largest}


def _triangle(first: Tensor, second: Tensor) -> Tensor:
    """T of the thin factorisation of [firstᵀ, secondᵀ], (heads, min(2D, d), 2D), from two of (heads, D, d)."""
    triangle: Tensor = torch.linalg.qr(torch.cat([first, second], dim=1).transpose(-1, -2), mode="r").R
    return triangle


def _comparable(*tensors: Tensor) -> list[Tensor]:
    """Bring tensors to one device and one precision that the decompositions know."""
    home, precise = tensors[-1].device, any(tensor.dtype is torch.float64 for tensor in tensors)
    return [tensor.to(home, torch.float64 if precise else torch.float32) for tensor in tensors]


def _weights_of(model: nn.Module) -> Callable[[nn.Module], list[QkWeights]]:
    """Return a reader of the weights of a transformers model, whose attention is looked for once."""
    found = attentions(
        model,
        "the spectrum of queries and keys",
        "give the weights of a model of your own: QkSpectral(model, weights=…)",
    )

    def read(_: nn.Module) -> list[QkWeights]:
        return [
            QkWeights(
                attention.label,
                _by_head(attention.query, attention.heads, attention.head_size),
                _by_head(attention.key, attention.key_value_heads, attention.head_size),
            )
            for attention in found
        ]

    for item in read(model):  # a form that is not known is told at once
        if item.query.shape[0] % item.key.shape[0]:
            raise UserError(
                f"layer {item.layer} has {item.query.shape[0]} query heads and {item.key.shape[0]} key heads, which do "
                "not fit; give the weights by a callable: QkSpectral(model, weights=...)"
            )
    return read
