"""The parts of a transformers model that monitors read and faults reach into: layers, attention, norms, experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
from torch import nn

from rmetric.errors import UserError

ROUTERS = ("gate", "router")
"""Names that transformers gives the router of a mixture-of-experts block."""
EPSILONS = ("variance_epsilon", "eps")
"""Names that transformers and torch give the ε of a norm."""
_EXPERTS_NEEDED = (
    "{} needs those of a layer in one module beside a router that chooses top_k of them; "
    "install transformers 5 or choose another model"
)


@dataclass(frozen=True)
class Layer:
    index: int
    name: str
    """Name in ``model.named_modules()``; so are all names here."""
    module: nn.Module


@dataclass(frozen=True)
class Projection:
    """Projection that makes the queries, keys or values: some of the output features of a linear module."""

    name: str
    module: nn.Module
    features: slice
    """All of them, or a third where one module (``c_attn`` of GPT-2) makes all three."""


@dataclass(frozen=True)
class Attention:
    """One attention of a layer: to the tokens themselves, or to those of an encoder."""

    layer: int
    label: int | str
    """Its layer, or its name where the number of a layer does not tell it from the others: in a model with several
    stacks, or several attentions in a layer."""
    name: str
    module: nn.Module
    """Module that transformers hands to its attention functions."""
    heads: int
    """Query heads."""
    key_value_heads: int
    """Key/value heads; each serves ``heads / key_value_heads`` neighbouring query heads."""
    head_size: int
    query: Projection
    key: Projection
    value: Projection


@dataclass(frozen=True)
class Norm:
    """An RMSNorm (or LayerNorm) on the residual stream of one decoder layer."""

    layer: int
    name: str
    module: nn.Module
    epsilon_attribute: str
    """Name of the module's attribute that holds its ε."""


@dataclass(frozen=True)
class ExpertBlock:
    """The mixture of experts of one layer."""

    layer: int
    label: int | str
    """Its layer or its name, as in :class:`Attention`."""
    name: str
    router: nn.Module
    """Makes one logit an expert and chooses ``top_k`` of them a token."""
    experts: nn.Module
    """All experts in one module, called with the hidden states, the chosen experts and their weights."""
    count: int
    """Experts in this layer."""
    top_k: int
    """Experts a token."""


def model_name(model: nn.Module) -> str:
    """Name of a model in messages: ``tiny-llama (LlamaForCausalLM)``, or the class alone. Never a path."""
    model = unwrapped(model)
    kind = type(model).__name__
    name = PurePath(getattr(getattr(model, "config", None), "name_or_path", "") or "").name
    return f"{name} ({kind})" if name else kind


def layer_stacks(model: nn.Module) -> list[list[Layer]]:
    """The stacks of layers of a model: one of a decoder, two of an encoder and decoder or of two towers.

    A stack is an outermost ``ModuleList`` with attention or a mixture of experts of a known form in it, so that a layer
    with neither (a convolution of LFM2) is one of its layers. Empty for a model without such lists.
    """
    stacks: list[list[Layer]] = []
    inside: tuple[str, ...] = ()
    for name, module in unwrapped(model).named_modules():
        if isinstance(module, nn.ModuleList) and not name.startswith(inside) and any(map(_is_known, module.modules())):
            stacks.append([Layer(index, f"{name}.{index}", layer) for index, layer in enumerate(module)])
            inside += (f"{name}.",)
    return stacks


def decoder_layers(model: nn.Module) -> list[Layer]:
    """The layers that faults reach by their number: those of the first stack of :func:`layer_stacks`, in order."""
    return next(iter(layer_stacks(model)), [])


def attentions(
    model: nn.Module, needed_by: str = "this", instead: str = "choose a model that has it"
) -> list[Attention]:
    """Every attention of a known form in the layers of all stacks, cross-attention included.

    Parameters
    ----------
    model
        Llama, Mistral, Mixtral, Qwen, LFM2, BART, Whisper, CLIP and others with separate projections, or GPT-2 with a
        fused one, whose cross-attention is left out; it may be wrapped by ``DistributedDataParallel``,
        ``torch.compile`` or peft.
    needed_by
        Who asks, for the message: ``fault GQA_MISMATCH``.
    instead
        What to do where there is none, for the message.

    Raises
    ------
    UserError
        If there is none that is known.
    """
    found = _labelled(model, _is_attention)
    if not found:
        own = any(_is_separate(module) and not _is_attention(module) for module in unwrapped(model).modules())
        has = "has these without the head_dim of transformers' attention modules" if own else "has none"
        raise UserError(
            f"{needed_by} needs attention with q_proj, k_proj and v_proj or GPT-2's c_attn, and {model_name(model)} "
            f"{has}; {instead}"
        )
    return [_attention(*part) for part in found]


def norms(model: nn.Module, needed_by: str = "this") -> list[Norm]:
    """The norms on the residual stream of :func:`decoder_layers`, in order: not those of queries and keys or the last.

    Raises :class:`~rmetric.errors.UserError` if there is none that is known.
    """
    parts = [part for part in _parts(decoder_layers(model)) if _epsilon(part[2])]
    width = max((_width(module) for _, _, module in parts), default=0)
    found = [
        Norm(layer, name, module, _epsilon(module)) for layer, name, module in parts if _width(module) == width > 0
    ]
    if not found:
        raise UserError(
            f"{needed_by} needs an RMSNorm or LayerNorm in the layers, and {model_name(model)} has none; "
            "choose a model that has it"
        )
    return found


def expert_blocks(model: nn.Module, needed_by: str = "this") -> list[ExpertBlock]:
    """The mixture of experts of each layer that has one, whatever its attention is.

    Raises :class:`~rmetric.errors.UserError` for a dense model, and for experts of no known form: such as are not in
    one module (as before transformers 5), or whose router does not say how many it chooses (Switch Transformers).
    """
    blocks = _labelled(model, _is_expert_block)
    if blocks:
        return [_expert_block(*block, needed_by) for block in blocks]
    if unknown := _first_expert(model):
        raise UserError(
            f"the experts of {model_name(model)} are of no known form ({unknown}); {_EXPERTS_NEEDED.format(needed_by)}"
        )
    raise UserError(
        f"{needed_by} needs a mixture-of-experts model and {model_name(model)} is dense; "
        "choose a model that has experts"
    )


def chosen_layers(available: list[int], layer: int | None, needed_by: str) -> list[int]:
    """The layer asked for, or all of those that have what it takes; raises :class:`~rmetric.errors.UserError`."""
    if layer is None:
        return available
    if layer not in available:
        raise UserError(f"{needed_by} cannot be brought upon layer {layer}; choose one of {available}")
    return [layer]


def drawn(rng: np.random.Generator, count: int, of: int) -> list[int]:
    """``count`` different numbers below ``of``, in rising order."""
    return sorted(rng.choice(of, size=count, replace=False).tolist())


def is_conv1d(module: nn.Module | None) -> bool:
    """True for a ``Conv1D`` of transformers, adapted or not: a linear module with a weight (inputs, outputs)."""
    return type(getattr(module, "base_layer", module)).__name__ == "Conv1D"


def _parts(layers: list[Layer]) -> Iterator[tuple[int, str, nn.Module]]:
    """Every module inside some layers: its layer, its name, itself."""
    for layer in layers:
        for name, module in layer.module.named_modules(prefix=layer.name):
            yield layer.index, name, module


def _labelled(model: nn.Module, wanted: Callable[[nn.Module], bool]) -> list[tuple[int, int | str, str, nn.Module]]:
    """Wanted modules of all stacks: the layer, the label (:class:`Attention`), the name, the module."""
    stacks = layer_stacks(model)
    found = [part for stack in stacks for part in _parts(stack) if wanted(part[2])]
    numbers_tell = len(stacks) == 1 and len({layer for layer, _, _ in found}) == len(found)
    return [(layer, layer if numbers_tell else name, name, module) for layer, name, module in found]


def _is_known(module: nn.Module) -> bool:
    return _is_attention(module) or _is_expert_block(module)


def _is_attention(module: nn.Module) -> bool:
    return isinstance(getattr(module, "head_dim", None), int) and (_is_separate(module) or _is_fused(module))


def _is_separate(module: nn.Module) -> bool:
    """True if queries, keys and values have a projection each that says how many features it makes."""
    projections = (getattr(module, name, None) for name in ("q_proj", "k_proj", "v_proj"))
    return all(isinstance(getattr(projection, "out_features", None), int) for projection in projections)


def _is_fused(module: nn.Module) -> bool:
    """True for the self-attention of GPT-2, where one projection makes all queries, then all keys, then all values.

    That of GPTBigCode has the same name and is no ``Conv1D``; it goes head by head.
    """
    named = hasattr(module, "num_heads") and not getattr(module, "is_cross_attention", False)
    return named and is_conv1d(getattr(module, "c_attn", None))


def _is_expert_block(module: nn.Module) -> bool:
    return hasattr(module, "experts") and _router(module) is not None


def _first_expert(model: nn.Module) -> str:
    """Name of the first module that is called an expert; empty for a model without one."""
    names = (name for name, _ in unwrapped(model).named_modules())
    return next((name for name in names if "expert" in name.rpartition(".")[2]), "")


def _attention(layer: int, label: int | str, name: str, module: nn.Module) -> Attention:
    head_size = int(module.head_dim)  # type: ignore[arg-type]
    if _is_fused(module):
        heads = key_value_heads = int(module.num_heads)  # type: ignore[arg-type]
        size = heads * head_size
        cuts = [slice(start * size, (start + 1) * size) for start in range(3)]
        query, key, value = (Projection(f"{name}.c_attn", module.c_attn, cut) for cut in cuts)  # type: ignore[arg-type]
    else:
        query, key, value = (_projection(name, module, f"{part}_proj") for part in "qkv")
        key_value_heads = key.features.stop // head_size
        heads = key_value_heads * int(getattr(module, "num_key_value_groups", 1))
    return Attention(layer, label, name, module, heads, key_value_heads, head_size, query, key, value)


def _projection(parent: str, attention: nn.Module, name: str) -> Projection:
    module = getattr(attention, name)
    return Projection(f"{parent}.{name}", module, slice(0, module.out_features))


def _epsilon(module: nn.Module) -> str:
    """Name of the attribute that holds a norm's ε; empty for what is no RMSNorm or LayerNorm."""
    if not type(module).__name__.endswith(("RMSNorm", "LayerNorm")):
        return ""
    return next((name for name in EPSILONS if hasattr(module, name)), "")


def _width(norm: nn.Module) -> int:
    """Features that a norm scales; 0 for one without a weight."""
    weight = getattr(norm, "weight", None)
    return 0 if weight is None else weight.numel()


def _router(block: nn.Module) -> nn.Module | None:
    found = (getattr(block, name, None) for name in ROUTERS)
    return next((module for module in found if isinstance(module, nn.Module)), None)


def _expert_block(layer: int, label: int | str, name: str, block: nn.Module, needed_by: str) -> ExpertBlock:
    router, experts = _router(block), block.experts
    top_k = getattr(router, "top_k", None) or getattr(block, "top_k", None)
    if router is None or not isinstance(experts, nn.Module) or not hasattr(experts, "num_experts") or top_k is None:
        raise UserError(f"the experts of {name} are of no known form; {_EXPERTS_NEEDED.format(needed_by)}")
    return ExpertBlock(layer, label, name, router, experts, int(experts.num_experts), int(top_k))  # type: ignore[arg-type]


def unwrapped(model: nn.Module) -> nn.Module:
    """The model without the shells of ``DistributedDataParallel`` and ``torch.compile``."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(inner := getattr(model, "_orig_mod", None), nn.Module):
            model = inner
        else:
            return model


def type_of(model: nn.Module) -> str:
    """Type of a model, as transformers names it; else the name of its class."""
    inside = unwrapped(model)
    kind = getattr(getattr(inside, "config", None), "model_type", None)
    return kind if isinstance(kind, str) and kind else type(inside).__name__


def vocabulary_of(model: nn.Module) -> int | None:
    """Number of tokens that a transformers model tells apart; ``None`` if it does not say."""
    size = None
    with suppress(Exception):  # a property of theirs may need what is not there
        size = getattr(getattr(unwrapped(model), "config", None), "vocab_size", None)
    return size if isinstance(size, int) and size > 1 else None
