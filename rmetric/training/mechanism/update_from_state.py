"""The last update worked out from what an optimizer keeps, without a copy of the parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rmetric.errors import UserError
from rmetric.training.mechanism.base import on_cpu

PROBED = 16
"""Entries of each tensor that tell whether there was an update at all."""
Rule = Callable[[Tensor, Mapping[str, Any], Mapping[str, Any]], Tensor]
"""From a parameter after the update, its state after the update and the settings of its group, to its change."""


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
        For any other; :class:`~rmetric.training.mechanism.update.ByDifference` serves all.

    **Deviation:** what is worked out is what should have happened; a parameter that was changed by anything else does
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
    return -settings["lr"] * direction * (-1.0 if settings["maximize"] else 1.0)


def adamw_change(parameter: Tensor, state: Mapping[str, Any], settings: Mapping[str, Any]) -> Tensor:
    """−η (d w′ + u) / (1 − ηd), with Adam's direction u."""
    decay = settings["lr"] * settings["weight_decay"]
    return (adam_change(parameter, state, settings) - decay * parameter) / (1 - decay)


def momentum_change(parameter: Tensor, state: Mapping[str, Any], settings: Mapping[str, Any]) -> Tensor:
    """−η b, with the momentum buffer b, which contains gradient and weight decay."""
    return -settings["lr"] * state["momentum_buffer"]
