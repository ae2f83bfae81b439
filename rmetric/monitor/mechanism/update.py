"""Measure the optimizer's last update of each tensor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rmetric.errors import UserError
from rmetric.monitor.mechanism.base import (
    HostArrays,
    MechanismMonitor,
    MonitorResult,
    Task,
    detached_copy,
    worst_of_each,
)
from rmetric.monitor.tensors import gathered, norms_of, on_cpu, stored


class UpdateExtremes(MechanismMonitor):
    """Root mean square and largest absolute change of every tensor in one optimizer step.

    ``update_max`` is the largest of all.

    The change is the parameters after the update minus a copy of them from before: true for any optimizer, a skipped
    step included, and it shows an update that was computed wrongly. In a sampled step it takes the memory of two copies
    of the parameters (this process's part of them).

    The record of step t holds the update of step t − 1, which led to it, as it does with ``update_rms``.

    **Source:** Altenbernd, Wiesner, Kao 2026, arXiv 2604.00726 (the update as the place where corruption shows).
    **Deviation:** with sharded parameters the process looks at its own part.
    """

    name: ClassVar[str] = "update"
    measures: ClassVar[tuple[str, ...]] = ("update_max",)

    def __init__(self, model: nn.Module) -> None:
        named = [(name, item) for name, item in model.named_parameters() if item.requires_grad and item.numel()]
        if not named:
            raise UserError("the monitor of updates needs a model with parameters that are trained")
        here = [(name, item) for name, item in named if stored(item).numel()]  # others lie in other processes
        self._names, self._parameters = [name for name, _ in here], [item for _, item in here]
        self._copy: list[Tensor] | None = None

    def arm(self) -> None:
        self._copy = [detached_copy(stored(parameter)) for parameter in self._parameters]

    @torch.no_grad()
    def take(self) -> Task | None:
        copy, self._copy = self._copy, None
        if not copy:
            return None
        now = [stored(parameter).detach() for parameter in self._parameters]
        changes = list(torch._foreach_sub(now, [old.to(new) for old, new in zip(copy, now, strict=True)]))
        largest = gathered(norms_of(changes, float("inf")))
        norms = gathered(norms_of(changes))
        entries = torch.tensor([change.numel() for change in changes])
        return lambda: {"rms": norms / entries.to(norms).sqrt(), "max": largest}

    def summarise(self, found: HostArrays) -> MonitorResult:
        largest = {"update_max": (found["max"], lambda index: self._names[index[0]])}
        return worst_of_each(largest, {"tensors": self._names, **found})

    def state_dict(self) -> dict[str, Any]:
        return {"copy": None if self._copy is None else [on_cpu(tensor) for tensor in self._copy]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._copy = state["copy"]
