"""How far the optimizer's last step moved each tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor, nn

from rmetric.errors import UserError
from rmetric.training.mechanism.base import Arrays, Measured, MechanismMonitor, Task, kept, on_cpu, worst_of
from rmetric.training.tensors import gathered


class UpdateSource(Protocol):
    """Where the changes of the parameters in one optimizer step come from."""

    def before(self, parameters: Sequence[nn.Parameter]) -> None:
        """Called after the step's last backward pass and before the update."""

    def changes(self, parameters: Sequence[nn.Parameter]) -> list[Tensor] | None:
        """The change of each parameter, after the update; ``None`` if the other call is missing."""

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint between the two."""

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
        self._copy = [kept(_own(parameter)) for parameter in parameters]

    def changes(self, parameters: Sequence[nn.Parameter]) -> list[Tensor] | None:
        copy, self._copy = self._copy, None
        if copy is None:
            return None
        now = [_own(parameter).detach() for parameter in parameters]
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
        :class:`~rmetric.training.mechanism.update_from_state.FromState` needs no copy of the parameters.

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

    @classmethod
    def of(cls, model: nn.Module, optimizer: torch.optim.Optimizer) -> Self:
        return cls(model)

    def arm(self) -> None:
        self._source.before(self._parameters)

    @torch.no_grad()
    def take(self) -> Task | None:
        changes = self._source.changes(self._parameters)
        if changes is None:
            return None
        largest = gathered(torch._foreach_norm(changes, float("inf"), torch.float32))
        norms = gathered(torch._foreach_norm(changes, 2, torch.float32))
        entries = torch.tensor([change.numel() for change in changes])
        return lambda: {"rms": norms / entries.to(norms).sqrt(), "max": largest}

    def summarise(self, found: Arrays) -> Measured:
        value, where = worst_of(found["max"], lambda index: self._names[index[0]], sign=1)
        details = {"tensors": self._names, **found}
        return Measured(values={"update_max": value}, worst={"update_max": where}, details=details)

    def state_dict(self) -> dict[str, Any]:
        return self._source.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._source.load_state_dict(state)


def _own(parameter: Tensor) -> Tensor:
    """A parameter, or this process's part of a sharded one."""
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter
