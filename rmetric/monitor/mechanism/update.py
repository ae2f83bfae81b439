"""Measure the optimizer's last update of each tensor: by difference, or computed from the optimizer's state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from rmetric.errors import UserError
from rmetric.monitor.mechanism.base import (
    HostArrays,
    MechanismMonitor,
    MonitorResult,
    Task,
    detached_copy,
    worst_of,
)
from rmetric.monitor.tensors import gathered, norms_of, on_cpu, stored


class UpdateSource(Protocol):
    """Source of the parameters' changes in one optimizer step."""

    def before(self, parameters: Sequence[nn.Parameter]) -> None:
        """Prepare, after the step's last backward pass and before the update."""

    def changes(self, parameters: Sequence[nn.Parameter]) -> list[Tensor] | None:
        """The change of each parameter, after the update; ``None`` if the other call is missing."""

    def state_dict(self) -> dict[str, Any]:
        """State of a checkpoint between the two calls."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""


class ByDifference:
    """Parameters after the update minus a copy of them from before: true for any optimizer, a skipped step included.

    It also shows an update that was computed wrongly. In a sampled step it takes the memory of two copies of the
    parameters (this process's part of them).
    """

    def __init__(self) -> None:
        self._copy: list[Tensor] | None = None

    def before(self, parameters: Sequence[nn.Parameter]) -> None:
        self._copy = [detached_copy(stored(parameter)) for parameter in parameters]

    def changes(self, parameters: Sequence[nn.Parameter]) -> list[Tensor] | None:
        copy, self._copy = self._copy, None
        if copy is None:
            return None
        now = [stored(parameter).detach() for parameter in parameters]
        return list(torch._foreach_sub(now, [old.to(new) for old, new in zip(copy, now, strict=True)]))

    def state_dict(self) -> dict[str, Any]:
        return {"copy": None if self._copy is None else [on_cpu(tensor) for tensor in self._copy]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._copy = state["copy"]


class UpdateExtremes(MechanismMonitor):
    """Root mean square and largest absolute change of every tensor in one optimizer step.

    ``update_max`` is the largest of all.

    The record of step t holds the update of step t − 1, which led to it, as it does with ``update_rms``.

    Parameters
    ----------
    model
        Its trainable parameters; tied ones count once.
    source
        How the change is found; ``None``: by difference.
        :class:`~rmetric.monitor.mechanism.update.FromState` needs no copy of the parameters.

    **Source:** Altenbernd, Wiesner, Kao 2026, arXiv 2604.00726 (the update as the place where corruption shows).
    **Deviation:** with sharded parameters the process looks at its own part.
    """

    name: ClassVar[str] = "update"
    measures: ClassVar[tuple[str, ...]] = ("update_max",)

    def __init__(self, model: nn.Module, *, source: UpdateSource | None = None) -> None:
        named = [(name, item) for name, item in model.named_parameters() if item.requires_grad and item.numel()]
        if not named:
            raise UserError("the monitor of updates needs a model with parameters that are trained")
        self._names = [name for name, _ in named]
        self._parameters = [parameter for _, parameter in named]
        self._source = ByDifference() if source is None else source

    def arm(self) -> None:
        self._source.before(self._parameters)

    @torch.no_grad()
    def take(self) -> Task | None:
        changes = self._source.changes(self._parameters)
        if changes is None:
            return None
        largest = gathered(norms_of(changes, float("inf")))
        norms = gathered(norms_of(changes))
        entries = torch.tensor([change.numel() for change in changes])
        return lambda: {"rms": norms / entries.to(norms).sqrt(), "max": largest}

    def summarise(self, found: HostArrays) -> MonitorResult:
        value, where = worst_of("update_max", found["max"], lambda index: self._names[index[0]])
        details = {"tensors": self._names, **found}
        return MonitorResult(values={"update_max": value}, worst={"update_max": where}, details=details)

    def state_dict(self) -> dict[str, Any]:
        return self._source.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._source.load_state_dict(state)


PROBED = 16
"""Entries of each tensor that tell whether there was an update at all."""
Rule = Callable[[Tensor, Mapping[str, Any], Mapping[str, Any]], Tensor]
"""Computes a parameter's change from the parameter and its state after the update and the settings of its group."""


class FromState:
    """Changes as the formulas of AdamW, Adam and SGD with momentum have them.

    With a step size η, weight decay d and direction u the decoupled rule is w′ = (1 − ηd) w − ηu, so that the change
    w′ − w = −η (d w′ + u) / (1 − ηd) needs w′ alone. A step that was skipped, which a few entries of every tensor tell,
    and a parameter without a gradient have the change 0.

    Parameters
    ----------
    optimizer
        ``torch.optim.AdamW``, ``Adam`` (without ``amsgrad``), or ``SGD`` with momentum and without Nesterov's rule.

    Raises
    ------
    UserError
        For any other; :class:`~rmetric.monitor.mechanism.update.ByDifference` serves all.

    **Deviation:** what is computed is what should have happened; a parameter that was changed by anything else does
    not show.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._rules = [_rule_of(optimizer, group) for group in optimizer.param_groups]
        self._settings: list[dict[str, Any]] | None = None
        self._present: list[bool] = []
        self._probe: Tensor | None = None

    def before(self, parameters: Sequence[nn.Parameter]) -> None:
        groups = self._optimizer.param_groups
        self._settings = [{name: value for name, value in group.items() if name != "params"} for group in groups]
        self._present = [parameter.grad is not None for parameter in parameters]
        self._probe = _probed(parameters)

    @torch.no_grad()
    def changes(self, parameters: Sequence[nn.Parameter]) -> list[Tensor] | None:
        settings, self._settings = self._settings, None
        if settings is None or self._probe is None:
            return None
        now = _probed(parameters)
        moved = (now != self._probe.to(now)).any()
        group_of = {
            id(item): index for index, group in enumerate(self._optimizer.param_groups) for item in group["params"]
        }
        found = []
        for parameter, present in zip(parameters, self._present, strict=True):
            state, index = self._optimizer.state.get(parameter), group_of.get(id(parameter))
            if not present or not state or index is None:
                found.append(torch.zeros_like(parameter))
            else:
                change = self._rules[index](parameter.detach(), state, settings[index])
                found.append(change * moved.to(change))
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"settings": self._settings, "present": list(self._present), "probe": on_cpu(self._probe)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._settings, self._present, self._probe = state["settings"], list(state["present"]), state["probe"]


def _probed(parameters: Sequence[nn.Parameter]) -> Tensor:
    """A few entries of every tensor."""
    flat = [parameter.detach().reshape(-1) for parameter in parameters]
    few = [values[:: max(1, len(values) // PROBED)][:PROBED] for values in flat]
    return torch.cat([values.to(few[0].device, torch.float32) for values in few])


def _rule_of(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> Rule:
    kind = type(optimizer)
    if kind in (torch.optim.AdamW, torch.optim.Adam) and not group["amsgrad"]:
        decoupled = kind is torch.optim.AdamW or group.get("decoupled_weight_decay", False)
        return adamw_change if decoupled else adam_change
    if kind is torch.optim.SGD and group["momentum"] and not group["nesterov"]:
        return momentum_change
    raise UserError(
        f"the update of {kind.__name__} with these settings cannot be worked out from its state; "
        "leave FromState out: the update is then found by difference"
    )


def adam_change(parameter: Tensor, state: Mapping[str, Any], settings: Mapping[str, Any]) -> Tensor:
    """−η m̂ / (√v̂ + ε), with m̂ = m / (1 − β₁ⁿ) and v̂ = v / (1 − β₂ⁿ) after n updates."""
    beta_1, beta_2 = settings["betas"]
    updates = torch.as_tensor(state["step"]).double()
    first = (1 - beta_1**updates).to(parameter)
    second = (1 - beta_2**updates).sqrt().to(parameter)
    direction = state["exp_avg"] / (first * (state["exp_avg_sq"].sqrt() / second + settings["eps"]))
    change: Tensor = -settings["lr"] * direction * (-1.0 if settings["maximize"] else 1.0)
    return change


def adamw_change(parameter: Tensor, state: Mapping[str, Any], settings: Mapping[str, Any]) -> Tensor:
    """−η (d w′ + u) / (1 − ηd), with Adam's direction u."""
    decay = settings["lr"] * settings["weight_decay"]
    change: Tensor = (adam_change(parameter, state, settings) - decay * parameter) / (1 - decay)
    return change


def momentum_change(parameter: Tensor, state: Mapping[str, Any], settings: Mapping[str, Any]) -> Tensor:
    """−η b, with the momentum buffer b, which contains gradient and weight decay."""
    change: Tensor = -settings["lr"] * state["momentum_buffer"]
    return change
