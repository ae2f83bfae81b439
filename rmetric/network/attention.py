"""Wrap or replace what a model computes as attention, without a change to the model or its configuration."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from rmetric.errors import UserError

AttentionFunction = Callable[..., tuple[Tensor, Tensor | None]]
"""Attention function of transformers: gets the attention module, query (B, H, T, D), key and value (B, K, S, D), a mask
and options by name; returns (B, T, H, D) and the probabilities or nothing. B rows, H query heads, K key/value heads, T
queries, S keys, D features a head."""


class Wrapper(Protocol):
    """Wrapper between a model and its attention function, which it may call or not."""

    def __call__(
        self,
        inner: AttentionFunction,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]: ...


def watching(look: Callable[[nn.Module, Tensor, Tensor, Tensor | None, dict[str, Any]], None]) -> Wrapper:
    """Make a wrapper that has a function look, in training, and leaves attention as it is.

    ``look`` gets the attention module, query, key, mask and options, as the attention function gets them. It must not
    raise: training would.
    """

    def watched(
        inner: AttentionFunction,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        if module.training:
            look(module, query, key, mask, options)
        return inner(module, query, key, value, mask, **options)

    return watched


def wrapped_attention(modules: Iterable[nn.Module], wrapper: Wrapper) -> AbstractContextManager[None]:
    """Put a wrapper around the attention function of some attention modules, as long as the context lasts.

    The function that the modules' configuration names is shadowed in transformers' own table by one that calls the
    wrapper for these modules and the shadowed one for all others. So the configuration keeps its value (and the masks
    their form), and a copy of the model made meanwhile is an ordinary model. Several wrappers may be entered and left
    in any order; the one entered last is called first.

    Parameters
    ----------
    modules
        Attention modules of transformers models; see :func:`rmetric.network.structure.attentions`.
    wrapper
        Called instead of the attention function, with that function as its first argument.

    Raises
    ------
    UserError
        For a module that does not ask transformers' table for its attention function.
    """
    return _entered(modules, wrapper, outermost=True)


def replaced_attention(modules: Iterable[nn.Module], replacement: Wrapper) -> AbstractContextManager[None]:
    """The same for a replacement that does not call the model's own function: it goes inside all wrappers.

    Who watches the queries and keys of these modules goes on seeing them.
    """
    return _entered(modules, replacement, outermost=False)


@contextmanager
def _entered(modules: Iterable[nn.Module], wrapper: Wrapper, outermost: bool) -> Iterator[None]:
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(_switch_of(module).wrapped(module, wrapper, outermost))
        yield


class _Switch:
    """Stands in a table of attention functions under one name, as long as a module is wrapped."""

    def __init__(self, table: Any, name: str) -> None:
        self._table, self._name = table, name
        self._wrappers: dict[nn.Module, list[Wrapper]] = {}
        self._shadowed: AttentionFunction | None = None

    @contextmanager
    def wrapped(self, module: nn.Module, wrapper: Wrapper, outermost: bool) -> Iterator[None]:
        if not self._wrappers:
            self._shadowed = self._table.get(self._name)
            self._table[self._name] = self  # an entry of the table itself, which shadows the one all tables share
        wrappers = self._wrappers.setdefault(module, [])
        wrappers.insert(len(wrappers) if outermost else 0, wrapper)
        try:
            yield
        finally:
            self._wrappers[module].remove(wrapper)
            if not self._wrappers[module]:
                del self._wrappers[module]
            if not self._wrappers:
                self._leave()

    def _leave(self) -> None:
        if self._table.get(self._name) is not self:  # somebody has put another function there meanwhile
            return
        del self._table[self._name]
        if self._shadowed is not None and self._table.get(self._name) is not self._shadowed:
            self._table[self._name] = self._shadowed

    def __call__(self, module: nn.Module, *args: Any, **options: Any) -> tuple[Tensor, Tensor | None]:
        call: AttentionFunction = self._shadowed or _code_of(module)["eager_attention_forward"]
        for wrapper in self._wrappers.get(module, ()):
            call = partial(wrapper, call)
        return call(module, *args, **options)


_SWITCHES: dict[tuple[int, str], _Switch] = {}
"""By table and name; a switch without wrappers stands in no table."""


def _switch_of(module: nn.Module) -> _Switch:
    code = _code_of(module)
    table = code.get("ALL_ATTENTION_FUNCTIONS")
    if table is None:
        raise UserError(
            f"the attention of {type(module).__name__} cannot be reached, for it does not use transformers' attention "
            "functions; choose a model that does"
        )
    name = getattr(module.config, "_attn_implementation", None) or "eager"
    if name == "eager" and getattr(module, "reorder_and_upcast_attn", False):
        raise UserError(
            f"the attention of {type(module).__name__} cannot be reached, for reorder_and_upcast_attn=True computes "
            "eager attention in another way; choose attn_implementation='sdpa'"
        )
    return _SWITCHES.setdefault((id(table), name), _Switch(table, name))


def _code_of(module: nn.Module) -> Mapping[str, Any]:
    """Names in the file that a module's class is from (the class of a sharded module is made up: its parent's then)."""
    files = (vars(sys.modules[kind.__module__]) for kind in type(module).__mro__ if kind.__module__ in sys.modules)
    return next((file for file in files if "ALL_ATTENTION_FUNCTIONS" in file), {})


def grouped_logits(query: Tensor, key: Tensor, scaling: float | None) -> Tensor:
    """Attention logits ``scaling · q·k`` before the mask, (B, H, T, S); keys of K heads are not copied to H.

    ``scaling`` of None is 1/√D. The product has the type of its factors; the queries are scaled first, so that it
    overflows only where a logit does.
    """
    rows, heads, tokens, size = query.shape
    scaled = query * (size**-0.5 if scaling is None else scaling)
    grouped = scaled.reshape(rows, key.shape[1], -1, size)
    return (grouped @ key.transpose(-1, -2)).view(rows, heads, tokens, key.shape[2])


def unmasked_logits(query: Tensor, key: Tensor, options: Mapping[str, Any], first: int = 0) -> Tensor:
    """Attention logits as the mask finds them, (B, H, t, S): scaled, capped to c·tanh(x/c), with a bias of positions.

    Parameters
    ----------
    query
        Some neighbouring queries, (B, H, t, D).
    key
        All keys, (B, K, S, D).
    options
        As the attention function got them: ``scaling``, ``softcap`` (c; Gemma 2), ``position_bias`` (added; T5).
    first
        The first of these queries.
    """
    logits = grouped_logits(query, key, options.get("scaling"))
    if (cap := options.get("softcap")) is not None:
        logits = cap * torch.tanh(logits / cap)
    if (bias := options.get("position_bias")) is not None:
        logits = logits + _part_of(bias, first, *logits.shape[-2:])
    return logits


def masked_logits(
    logits: Tensor, module: nn.Module, mask: Tensor | None, options: Mapping[str, Any], first: int = 0, total: int = 0
) -> Tensor:
    """Logits as the softmax gets them: −∞ (or the mask's own large negative number) where a token must not look.

    Parameters
    ----------
    logits
        Of some neighbouring queries, (B, H, t, S).
    module, mask, options
        As the attention function got them. A mask of four dimensions is boolean (true: look) or is added; one of two,
        (B, S), says which keys are no padding; without one, and beside one of two, attention is causal if the module
        is, within ``sliding_window`` if there is one.
    first, total
        The first of these queries, and how many there are in all (0: these are all).
    """
    if mask is not None and not isinstance(mask, Tensor):
        raise TypeError(f"a mask that is no tensor ({type(mask).__name__}, as of flex_attention) is not known")
    queries, keys = logits.shape[-2:]
    if mask is not None and mask.ndim == 4:
        part = _part_of(mask, first, queries, keys)
        return logits.masked_fill(~part, -torch.inf) if part.dtype is torch.bool else logits + part
    if mask is not None and mask.ndim != 2:
        raise TypeError(f"a mask of {mask.ndim} dimensions is not known")
    looks = _causal(module, options, queries, keys, first, total or queries, logits.device)
    if mask is not None:
        padding = mask[:, None, None, :keys].bool()
        looks = padding if looks is None else looks & padding
    return logits if looks is None else logits.masked_fill(~looks, -torch.inf)


def _part_of(table: Tensor, first: int, queries: int, keys: int) -> Tensor:
    """The part of a table (…, T, S) for some neighbouring queries; one with T = 1 holds for all of them."""
    rows = table[..., first : first + queries, :] if table.shape[-2] > 1 else table
    return rows[..., :keys]


def _causal(
    module: nn.Module,
    options: Mapping[str, Any],
    queries: int,
    keys: int,
    first: int,
    total: int,
    device: torch.device,
) -> Tensor | None:
    """Mask of the keys that each query may look at, (t, S); None: all."""
    asked = options.get("is_causal")
    causal = getattr(module, "is_causal", True) if asked is None else asked
    if not causal or total == 1:
        return None
    ahead = torch.arange(keys, device=device) - torch.arange(first, first + queries, device=device)[:, None]
    window = options.get("sliding_window")
    return (ahead <= 0) if window is None else (ahead <= 0) & (ahead > -window)
