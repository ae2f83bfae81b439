"""Bugs of the graph of gradients: a part of the model is frozen, or cut off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmetric.errors import UserError
from rmetric.faults.base import register_fault
from rmetric.faults.bugs.base import (
    Bug,
    PartialBug,
    is_distributed,
    number_but_one,
    randomness_kept,
    trained_parameters,
)

if TYPE_CHECKING:
    from torch import nn

    from rmetric.live.run import LiveRun


@register_fault("HALF_FROZEN")
@dataclass(frozen=True, kw_only=True)
class HalfFrozen(PartialBug):
    """The first part of the model no longer requires gradients: a line of an earlier fine-tuning was left in."""

    source = "TrainCheck, Jiang et al., OSDI 2025, arXiv 2506.14813 (pytorch-forum-84911)"
    severities = {"low": {"share": 0.2}, "medium": {}, "high": {"share": 0.9}}

    share: float = 0.5
    """Share of the tensors, from the first one on; above 0 and up to 1. One at least is trained."""

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        _refuse_distributed(self, training)
        tensors = [item for _, item in trained_parameters(training)]
        frozen = tensors[: number_but_one(self, tensors)]
        training.observer.note("CORRUPTION", fault=self.name, tensors=len(frozen), of=len(tensors))
        for item in frozen:
            item.requires_grad_(False)
        try:
            yield
        finally:
            for item in frozen:
                item.requires_grad_(True)


@register_fault("DETACHED_PART")
@dataclass(frozen=True, kw_only=True)
class DetachedPart(Bug):
    """What a layer returns is detached (by ``.detach()``, ``.data``, ``.item()`` or a detour through NumPy).

    No gradient reaches that layer, nor what is below it unless by a way around. Weight decay and momentum may still
    move the weights there.
    """

    source = "PyTorch documentation, autograd mechanics (what is detached is a constant)"
    severities = {"low": {"depth": 0.0}, "medium": {}, "high": {"depth": 1.0}}
    at_least = {"depth": 0.0}
    at_most = {"depth": 1.0}

    depth: float = 0.5
    """Place of the layer (or block) among those that a forward pass goes through: 0: the first; 1: the last but one."""

    @contextmanager
    def inject(self, training: LiveRun) -> Iterator[None]:
        _refuse_distributed(self, training)
        layers = _layers_as_called(training)
        if len(layers) < 2:
            raise UserError(f"{self.name} needs a model with at least two layers that are trained")
        name, module = layers[round(self.depth * (len(layers) - 2))]
        hook = module.register_forward_hook(lambda module, inputs, output: _detached(output))
        try:
            if not _loss_has_gradient(training):
                raise UserError(f"{self.name} cannot detach {name}: the held-out loss would have no gradient left")
            training.observer.note("CORRUPTION", fault=self.name, modules=[name])
            yield
        finally:
            hook.remove()


def _refuse_distributed(bug: Bug, training: LiveRun) -> None:
    # Its processes wait for the gradients of all parameters that it was made of.
    if is_distributed(training):
        raise UserError(
            f"{bug.name} is for models in one process; DistributedDataParallel would wait for the gradients"
        )


def _layers_as_called(training: LiveRun) -> list[tuple[str, nn.Module]]:
    """Layers with trained parameters, in the order in which a forward pass first calls them."""
    called: dict[str, nn.Module] = {}

    def noting(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def note(module: nn.Module, inputs: Any, output: Any) -> None:
            called.setdefault(name, module)

        return note

    with ExitStack() as stack:
        for name, module in _layers(training.model):
            stack.callback(module.register_forward_hook(noting(name)).remove)
        training.held_out_loss("validation")
    return list(called.items())


def _layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Trained members of the first list of modules that has two; without one, trained modules without children."""
    from torch import nn

    trained = {
        name: item for name, item in model.named_modules() if any(one.requires_grad for one in item.parameters())
    }
    for place, container in trained.items():
        prefix = f"{place}." if place else ""
        members = [
            (f"{prefix}{name}", item) for name, item in container.named_children() if f"{prefix}{name}" in trained
        ]
        if isinstance(container, nn.ModuleList | nn.Sequential) and len(members) > 1:
            return members
    return [(name, item) for name, item in trained.items() if not any(item.children())]


def _loss_has_gradient(training: LiveRun) -> bool:
    import torch

    training.model.eval()
    with randomness_kept(training), torch.enable_grad():
        return training.held_out_loss_of(training.held_out_batch("validation"), "validation").requires_grad


def _detached(output: Any) -> Any:
    """What a layer returns, without gradients: a tensor, or tuples of tensors as recurrent layers have them."""
    from torch import Tensor

    if isinstance(output, Tensor):
        return output.detach()
    if isinstance(output, tuple):
        return tuple(map(_detached, output))
    return output
