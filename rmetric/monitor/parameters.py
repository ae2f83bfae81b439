"""The trained parameters of a model, followed while layers are unfrozen, added, removed or replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

ABSENT = nn.Parameter(torch.empty(0), requires_grad=False)
"""Stands where a parameter was that the model has no more; it never has a gradient."""


def owned_by(optimizer: torch.optim.Optimizer) -> set[int]:
    """Identities of the parameters that an optimizer updates."""
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}


class ModelParameters:
    """Parameters that are trained: those that require a gradient, and from its first gradient on any other.

    A parameter keeps its number for good: later ones come after it, one that is replaced under the same name takes its
    place. Tied ones count once, those without memory (the device ``meta``) not at all. A model that ``fully_shard`` has
    sharded keeps the parameters that it has.

    To look whether one has come or gone costs about 0.1 µs for each parameter and module.

    ``only``: no others than these.
    """

    def __init__(self, model: nn.Module, only: Iterable[nn.Parameter] | None = None) -> None:
        self._model = model
        self._only = None if only is None else {id(tensor): tensor for tensor in only}
        self.names: list[str] = []
        """Name of each parameter; the list only grows."""
        self.tensors: list[nn.Parameter] = []
        """Each parameter, or :data:`ABSENT`."""
        self.version = 0
        """Rises whenever the parameters are others than before."""
        self.renormalised: set[int] = set()
        """Identities of weights that a forward pass changes itself: those of ``nn.Embedding(max_norm=...)``."""
        self._places: dict[str, int] = {}
        self._frozen: dict[str, nn.Parameter] = {}
        self._walk()
        self.requiring = self._required()
        """Of each of :attr:`tensors`, whether it is there and requires a gradient, as of the last look."""
        self._sharded = any(hasattr(tensor, "device_mesh") for tensor in self.tensors)

    @property
    def device(self) -> torch.device:
        """Device of the first parameter."""
        return next((tensor.device for tensor in self.tensors if tensor is not ABSENT), torch.device("cpu"))

    @property
    def present(self) -> list[nn.Parameter]:
        """Parameters of :attr:`tensors` that the model has now."""
        return [tensor for tensor in self.tensors if tensor is not ABSENT]

    def may_be(self, tensor: Tensor) -> bool:
        """Whether a parameter of the model is watched as soon as it is trained."""
        return self._only is None or id(tensor) in self._only

    def refresh(self) -> None:
        """Take in what has come or gone since the last call; call it when the gradients of a step are there."""
        if not self._sharded and list(map(id, chain.from_iterable(self._tables))) != self._identities:
            self._walk()
        thawed = [name for name, tensor in self._frozen.items() if tensor.grad is not None]
        for name in thawed:
            self._put(name, self._frozen.pop(name))
        self.requiring = self._required()

    def _required(self) -> list[bool]:
        return [tensor.requires_grad for tensor in self.tensors]

    def _walk(self) -> None:
        """List the model's parameters anew, and what tells whether it has others."""
        modules = list(self._model.modules())
        # Views: they follow what happens to a module, and to iterate over them makes no Python call.
        self._tables = [table.values() for module in modules for table in (module._parameters, module._modules)]
        self._members = list(chain.from_iterable(self._tables))  # kept, so that no other object gets their identity
        self._identities = list(map(id, self._members))
        scaled = [module for module in modules if getattr(module, "max_norm", None) is not None]
        self.renormalised = {id(tensor) for module in scaled for tensor in module._parameters.values()}
        named = self._model.named_parameters()
        found = {name: tensor for name, tensor in named if not tensor.is_meta and self.may_be(tensor)}
        for name in self.names:
            self._put(name, found.pop(name, ABSENT))
        self._frozen = {name: tensor for name, tensor in found.items() if not tensor.requires_grad}
        for name, tensor in found.items():
            if tensor.requires_grad:
                self._put(name, tensor)

    def _put(self, name: str, tensor: nn.Parameter) -> None:
        """Let a name stand for a parameter, and see whether it did not before."""
        place = self._places.setdefault(name, len(self.names))
        if place == len(self.names):
            self.names.append(name)
            self.tensors.append(ABSENT)
        if self.tensors[place] is not tensor:
            self.tensors[place] = tensor
            self.version += 1

    def state_dict(self) -> dict[str, Any]:
        """Names in their order, on which all that is remembered of a parameter rests."""
        return {"names": list(self.names)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Number the parameters as the run did that is resumed."""
        found = {**self._frozen, **dict(zip(self.names, self.tensors, strict=True))}
        self.names[:] = dict.fromkeys([*state["names"], *self.names])
        self.tensors[:] = [found.get(name, ABSENT) for name in self.names]
        self._places = {name: place for place, name in enumerate(self.names)}
        self._frozen = {name: tensor for name, tensor in self._frozen.items() if name not in self._places}
        self.requiring = self._required()
        self.version += 1
