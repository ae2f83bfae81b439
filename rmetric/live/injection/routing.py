"""Biased router logits: the router's own code chooses the experts, from logits that are not its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

SEARCH_STEPS = 40
"""Halvings of the interval in which a bias is looked for."""


@contextmanager
def changed_logits(router: nn.Module, experts: int, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Let a router work with changed logits, as long as the context lasts; its weights are untouched.

    Parameters
    ----------
    router
        A module whose ``forward`` makes the logits with ``torch.nn.functional.linear``, as all of transformers' do.
    experts
        Number of experts E: a linear map to E features makes the logits.
    change
        From the logits, (tokens, E), to those that the router goes on with and returns.
    """
    own = router.__dict__.get("forward")  # a library that moves weights between devices may have put one there
    forward = router.forward

    def changed(*args: Any, **kwargs: Any) -> Any:
        with _ChangedLinear(experts, change):
            return forward(*args, **kwargs)

    router.forward = changed  # type: ignore[method-assign]
    try:
        yield
    finally:
        del router.forward
        if own is not None:
            router.forward = own  # type: ignore[method-assign]


class _ChangedLinear(TorchFunctionMode):
    """Changes what linear maps to a number of features return."""

    def __init__(self, features: int, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._features, self._change = features, change

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return self._change(result) if func is functional.linear and result.shape[-1] == self._features else result


@torch.no_grad()
def bias_for_share(logits: Tensor, favoured: Tensor, top_k: int, share: float) -> Tensor:
    """The smallest bias for which favoured experts get a share of the routing of these tokens.

    Parameters
    ----------
    logits
        Shape (tokens, E).
    favoured
        Boolean, shape (E,).
    top_k
        Experts a token.
    share
        Of all (token, chosen expert) pairs, in [0, 1].

    Returns
    -------
    scalar
        On the device, at least 0; found by halving intervals without waiting for the device.
    """
    logits = logits.float()
    low = logits.new_zeros(())
    high = logits.amax() - logits.amin() + 1.0
    for _ in range(SEARCH_STEPS):
        middle = (low + high) / 2
        enough = routed_share(logits + favoured * middle, favoured, top_k) >= share
        low, high = torch.where(enough, low, middle), torch.where(enough, middle, high)
    return torch.where(routed_share(logits, favoured, top_k) >= share, torch.zeros_like(high), high)


def routed_share(logits: Tensor, favoured: Tensor, top_k: int) -> Tensor:
    """Share of the routing that favoured experts get when each token chooses the ``top_k`` largest logits."""
    return favoured[logits.topk(top_k, dim=-1).indices].float().mean()
