"""What the tests of the injected faults share beside the fixtures: an observer, exact comparison, the batches seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rmetric.faults import make_fault
from rmetric.live.run import LiveRun, NoObserver

MAKE = Callable[..., Any]
"""The fixture ``make_run``: a live run of the kind that is named."""


_OF_TORCH = {"_is_full_backward_hook", "training"}
"""Attributes of a module that torch itself changes for good: a note of what kind of hook it last had, and its mode."""


class Notes(NoObserver):
    """An observer that keeps what it is told, and a copy of the last gradients, before clipping."""

    def __init__(self, run: LiveRun) -> None:
        self.run = run
        self.told: list[dict[str, Any]] = []
        self.gradients: dict[str, Tensor] = {}
        run.observer = self

    def step(self, loss: Tensor, *, recompute: object = None) -> bool:
        self.gradients = {
            name: parameter.grad.clone()
            for name, parameter in self.run.model.named_parameters()
            if parameter.grad is not None
        }
        return True

    def note(self, event: str, **fields: Any) -> None:
        self.told.append({"event": event, **fields})


def same_bits(left: Any, right: Any) -> bool:
    """Whether two states are equal in every bit; NaN equals NaN."""
    if isinstance(left, Tensor):
        bytes_of = [value.detach().reshape(-1).contiguous().view(torch.uint8) for value in (left, right)]
        return left.shape == right.shape and left.dtype == right.dtype and torch.equal(*bytes_of)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same_bits(value, right[key]) for key, value in left.items())
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same_bits, left, right))
    return bool(left == right)


def trained(run: LiveRun, steps: int) -> LiveRun:
    """The same run, some steps later."""
    for _ in range(steps):
        run.train_step()
    return run


def batches_of(run: Any, steps: int = 1) -> list[Any]:
    """Batches of some steps as training gets them."""
    seen: list[Any] = []

    def look(batch: Any) -> Any:
        seen.append(batch)
        return batch

    with run.at("batch", look):
        trained(run, steps)
    return seen


def right_and_wrong(make_run: MAKE, model: str, fault: str, **parameters: Any) -> tuple[Any, Any]:
    """The first batch of two runs made alike, the second of which has a fault."""
    (right,), (wrong,) = batches_of(make_run(model)), batches_with(make_run(model), fault, **parameters)
    return right, wrong


def batches_with(run: Any, fault: str, steps: int = 1, **parameters: Any) -> list[Any]:
    """The same with a fault in each of them."""
    with make_fault(fault, **parameters).inject(run):
        return batches_of(run, steps)


def surface(run: LiveRun) -> dict[str, Any]:
    """All at which a fault might hold on to a run: hooks, attributes, configuration, the modes of torch and tables."""
    modules = {name: _attributes(module) for name, module in run.model.named_modules()}
    parameters = {
        name: (id(value), value.requires_grad, value.dtype, _hooks(value))
        for name, value in run.model.named_parameters()
    }
    return {
        "modules": modules,
        "parameters": parameters,
        "gradients": [name for name, value in run.model.named_parameters() if value.grad is not None],
        "hooks": {moment: list(calls) for moment, calls in run.hooks.items() if calls},
        "learning_rate": (run.learning_rate_factor, run.schedule_ahead_steps, run.config),
        "observer": id(run.observer),
        "optimizer": (id(run.optimizer), sorted(vars(run.optimizer)), dict(run.optimizer._optimizer_step_pre_hooks)),
        "groups": [
            {**group, "params": list(map(id, group["params"])), "lr": 0.0} for group in run.optimizer.param_groups
        ],
        "configuration": vars(run.model.config).copy() if hasattr(run.model, "config") else None,
        "run": sorted(vars(run)),
        "attention": dict(ALL_ATTENTION_FUNCTIONS),
        "torch function modes": torch._C._len_torch_function_stack(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _attributes(module: nn.Module) -> dict[str, Any]:
    """What a module holds but for its children: hook tables as they are, other values by what they are."""
    return {
        key: dict(value) if isinstance(value, Mapping) else id(value) if isinstance(value, Tensor) else value
        for key, value in vars(module).items()
        if key not in _OF_TORCH
    }


def _hooks(parameter: Tensor) -> list[list[Any]]:
    tables = (parameter._backward_hooks, getattr(parameter, "_post_accumulate_grad_hooks", None))
    return [list(table or ()) for table in tables]
