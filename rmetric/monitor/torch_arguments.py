"""Check what a monitor is given of a training with torch, so that a mistake is one line before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from rmetric.errors import UserError
from rmetric.monitor.arguments import check_number, check_switch, check_switch_or, kind_of
from rmetric.monitor.ranks.hang_watch import HangWatch


def check_trained(model: Any, optimizer: Any) -> None:
    """Raise :class:`UserError` unless these are a model with something to train and an optimizer."""
    if isinstance(model, torch.optim.Optimizer) and isinstance(optimizer, nn.Module):
        raise UserError("model and optimizer are swapped; call TrainingMonitor(model, optimizer)")
    if not isinstance(model, nn.Module):
        raise UserError(f"model must be the torch module that is trained, not {kind_of(model)}")
    if not isinstance(optimizer, torch.optim.Optimizer):
        several = (
            "; of several, give the one that updates most of it" if isinstance(optimizer, list | tuple | dict) else ""
        )
        raise UserError(f"optimizer must be the torch optimizer of the model, not {kind_of(optimizer)}{several}")
    if isinstance(model, torch.jit.ScriptModule):
        raise UserError("a scripted model takes no hooks; give the monitor a model that torch.jit.script has not made")
    if any(is_lazy(parameter) for parameter in model.parameters()):
        raise UserError(
            f"{type(model).__name__} has parameters that get their shapes in its first forward pass; make that before "
            "TrainingMonitor(model, optimizer)"
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(
            f"{type(model).__name__} has no parameter with requires_grad=True; give the monitor the model that is "
            "trained, after its layers are unfrozen"
        )


def check_parameters(parameters: Any, model: nn.Module) -> list[nn.Parameter] | None:
    """Those of the model that are measured; raises :class:`UserError` unless one of them is trained."""
    if parameters is None:
        return None
    if not isinstance(parameters, Iterable):
        raise UserError(
            f"parameters must be those of the model, such as parameters=model.generator.parameters(); not "
            f"{parameters!r}"
        )
    chosen = [*parameters]
    trained = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    if trained.isdisjoint(map(id, chosen)):
        raise UserError(
            f"none of parameters= is a parameter of {type(model).__name__} with requires_grad=True; pass such as "
            "parameters=model.generator.parameters()"
        )
    return chosen


def stepping_optimizer(optimizer: Any) -> Any:
    """The optimizer that makes the steps.

    Inside wrappers that look like one but lack its hooks, as Accelerate's, or that let another one step, as common
    implementations of SAM do; any other as it is.
    """
    while isinstance(inner := getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = inner
    base = getattr(optimizer, "base_optimizer", None)
    steps = isinstance(base, torch.optim.Optimizer) and base.param_groups is optimizer.param_groups
    return base if steps else optimizer


def usable_loss(loss: Any) -> Tensor | None:
    """A loss as a tensor; ``None`` if it is not one real number."""
    try:
        # a number is one of the host, in single precision, whatever the defaults of torch are
        dtype = torch.float32 if type(loss) is float else None
        tensor = loss if isinstance(loss, Tensor) else torch.as_tensor(loss, dtype=dtype, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        return None
    readable = tensor.layout is torch.strided and not (tensor.is_complex() or tensor.is_quantized or tensor.is_meta)
    return tensor if readable and tensor.numel() == 1 else None


def check_recompute(recompute: Any) -> None:
    """Raise :class:`UserError` unless this is a function, or left out."""
    if recompute is not None and not callable(recompute):
        raise UserError(f"recompute must be a function that computes the step again, not {recompute!r}")


def returning_loss(recompute: Callable[[], Any]) -> Callable[[], Any]:
    """The same function, which raises :class:`UserError` unless it returns a loss."""

    def checked() -> Any:
        loss = recompute()
        if usable_loss(loss) is None:
            raise UserError(f"recompute must return the loss of the step; it has returned {kind_of(loss)}")
        return loss

    return checked


def check_torch_options(
    *, scaler: Any, hang: Any, update_entries: Any, sync: Any, attention_logits: Any, sigma_sq_every: Any, **_: Any
) -> None:
    """Raise :class:`UserError` for an option of the wrong kind, with what to pass instead."""
    if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
        raise UserError(f"scaler must be the torch.amp.GradScaler of the loop, or be left out; not {kind_of(scaler)}")
    if update_entries is not None:
        check_number("update_entries", update_entries, "entries", example=16384)
    check_switch_or("hang", hang, HangWatch)
    for name, given in (("sync", sync), ("attention_logits", attention_logits)):
        check_switch(name, given)
    check_number("sigma_sq_every", sigma_sq_every)
