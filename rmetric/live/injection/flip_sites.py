"""Places where a bit may flip: parameters, gradients, optimizer state, modules; found by name or drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from rmetric.errors import UserError, did_you_mean
from rmetric.live.injection.bits import FORMATS
from rmetric.live.run import LiveRun
from rmetric.network.structure import decoder_layers, unwrapped

Item = TypeVar("Item")
Fetch = Callable[[], Tensor | None]
"""Gets a tensor as it is now; None while there is none."""


@dataclass(frozen=True)
class Site(Generic[Item]):
    """One place whose bits may flip."""

    name: str
    item: Item
    """Call that gets the tensor, or the module that computes it."""
    dtype: torch.dtype
    """Type of the numbers; under autocast the one to expect."""
    typical: bool
    """True if it is drawn where no name is given: it lies in a layer and is no vector of a few numbers."""


def weights(training: LiveRun) -> list[Site[Fetch]]:
    """Parameters; typical: the matrices of the layers."""
    layers = _Layers(training.model)
    return [
        Site(name, partial(_itself, parameter), parameter.dtype, layers.hold_matrix(name, parameter))
        for name, parameter in _parameters(training)
        if parameter.dtype in FORMATS
    ]


def gradients(training: LiveRun) -> list[Site[Fetch]]:
    """Gradients of the parameters that are trained; typical: those of the matrices of the layers."""
    layers = _Layers(training.model)
    return [
        Site(name, partial(getattr, parameter, "grad"), parameter.dtype, layers.hold_matrix(name, parameter))
        for name, parameter in _parameters(training)
        if parameter.requires_grad and parameter.dtype in FORMATS
    ]


def optimizer_state(training: LiveRun) -> list[Site[Fetch]]:
    """State that the optimizer keeps of each parameter, such as ``….exp_avg``; not its count of steps."""
    layers, optimizer = _Layers(training.model), training.optimizer
    return [
        Site(
            f"{name}.{key}",
            partial(_remembered, optimizer, parameter, key),
            value.dtype,
            layers.hold_matrix(name, value),
        )
        for name, parameter in _parameters(training)
        if parameter in optimizer.state
        for key, value in optimizer.state[parameter].items()
        if isinstance(value, Tensor) and value.dtype in FORMATS and value.dim()
    ]


def modules(training: LiveRun) -> list[Site[nn.Module]]:
    """Modules that have an output; typical: the layers, whose outputs are the residual stream."""
    layers = _Layers(training.model)
    return [
        Site(name, module, _computed_dtype(training), name in layers.names)
        for name, module in unwrapped(training.model).named_modules()
        if name and not isinstance(module, nn.ModuleList | nn.ModuleDict)
    ]


def linear_layers(training: LiveRun) -> list[Site[nn.Module]]:
    """Linear layers, GPT-2's ``Conv1D`` among them; typical: those within the transformer's layers."""
    layers = _Layers(training.model)
    return [
        Site(name, module, _computed_dtype(training), layers.hold(name))
        for name, module in unwrapped(training.model).named_modules()
        if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"
    ]


def choose(sites: list[Site[Item]], pattern: str, rng: np.random.Generator, kind: str) -> Site[Item]:
    """The site of that name; one drawn where several fit, or of the typical ones where there is no name.

    Parameters
    ----------
    sites
        Those to choose from.
    pattern
        A part of the name, ``*`` and ``?`` allowed (``layers.1.*o_proj``); what lies between two dots is matched as a
        whole where it can be, so ``exp_avg`` is not ``exp_avg_sq``. Empty: any typical site.
    rng
        Draws uniformly over the sites, not over their elements.
    kind
        What the sites are, for the message.

    Raises
    ------
    UserError
        Where nothing fits.
    """
    pool = _fitting(sites, pattern) if pattern else [site for site in sites if site.typical]
    if not pool and not pattern:
        raise UserError(f"this model has no {kind} within a list of layers to draw from; name one with tensor=")
    if not pool:
        raise UserError(f"no {kind} fits tensor={pattern}{_hint(pattern, sites)}")
    return pool[int(rng.integers(len(pool)))]


def _fitting(sites: list[Site[Item]], pattern: str) -> list[Site[Item]]:
    """Sites that have the name, else those with it between dots, else those with it anywhere."""
    for dotted in (f".{pattern}.", f"*.{pattern}.*", f"*{pattern}*"):
        fitting = [site for site in sites if fnmatchcase(f".{site.name}.", dotted)]
        if fitting:
            return fitting
    return []


def _hint(pattern: str, sites: list[Site[Item]]) -> str:
    """The nearest name, or part of a name between two dots."""
    words = {word: None for site in sites for word in (site.name, *site.name.split(".")) if not word.isdigit()}
    return did_you_mean(pattern, words, cutoff=0.5)


class _Layers:
    """The names of a transformer's layers, and what lies within them."""

    def __init__(self, model: nn.Module) -> None:
        self.names = [layer.name for layer in decoder_layers(model)]
        self._prefixes = tuple(f"{name}." for name in self.names)

    def hold(self, name: str) -> bool:
        return name.startswith(self._prefixes)

    def hold_matrix(self, name: str, tensor: Tensor) -> bool:
        return tensor.dim() > 1 and self.hold(name)


def _parameters(training: LiveRun) -> Iterator[tuple[str, nn.Parameter]]:
    return unwrapped(training.model).named_parameters()


def _remembered(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, key: str) -> Tensor | None:
    return optimizer.state[parameter].get(key)


def _itself(tensor: Tensor) -> Tensor:
    return tensor


def _computed_dtype(training: LiveRun) -> torch.dtype:
    return training.config.autocast or next(training.model.parameters()).dtype
