"""The contract of a mechanism monitor, and what the monitors share."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rmetric.measurements import OBSERVABLE

Place = Callable[[tuple[int, ...]], str]
"""Names the location of an index."""
DeviceArrays = Mapping[str, Tensor]
"""Per-location measurements on the device, by name."""
HostArrays = Mapping[str, NDArray[np.float64]]
"""Per-location measurements on the host, by name."""
Task = Callable[[], DeviceArrays]
"""Rest of a measurement, for any thread: it reads only tensors that training does not change any longer."""


@dataclass(frozen=True, kw_only=True)
class MonitorResult:
    """Result of one monitor in one step."""

    values: Mapping[str, float] = field(default_factory=dict)
    """Measurement → the worst over all locations. One that is not defined in this step is missing; one that was
    measured and is not finite is NaN or infinite."""
    worst: Mapping[str, str] = field(default_factory=dict)
    """Measurement → where that was: ``layer 1, head 3``."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Name → all locations, as nested lists."""


class MechanismMonitor(ABC):
    """Measures one mechanism of a model, now and then.

    Before a step that is to be measured :meth:`arm` is called: between the step before it and the update of that. Then
    comes the step's forward and backward; then :meth:`take`, and :meth:`disarm`. Hooks stand only in between.

    Any method may raise: the watch then goes on without this monitor, and so does training.
    """

    name: ClassVar[str]
    """Name by which a user asks for it."""
    measures: ClassVar[tuple[str, ...]]
    """Names out of :data:`rmetric.measurements.MECHANISM` (and ``attention_logit_max``) that it may give."""

    @classmethod
    def of(cls, model: nn.Module, optimizer: torch.optim.Optimizer) -> Self:
        """Make one with its default settings.

        Raises :class:`~rmetric.errors.UserError` for a model without this mechanism.
        """
        return cls(model)  # type: ignore[call-arg]

    def arm(self) -> None:  # noqa: B027 - most need no preparation
        """Prepare: the next step will be measured. Called before the update of the step before."""

    def restart(self) -> None:  # noqa: B027 - most collect nothing on the way
        """Forget what was collected since :meth:`arm`: the step's forward and backward are done once more."""

    def disarm(self) -> None:  # noqa: B027 - most have put up no hook
        """Take every hook off the model. May be called twice, and without :meth:`arm`."""

    @abstractmethod
    def take(self) -> Task | None:
        """Keep what the measurement needs, after the step's last backward pass; waits for nothing.

        ``None``: this step cannot be measured.
        """

    @abstractmethod
    def summarise(self, found: HostArrays) -> MonitorResult:
        """Find the worst of all locations and where it was; on the host."""

    def state_dict(self) -> dict[str, Any]:
        """State that later measurements depend on: tensors (on the CPU) and plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - most depend on nothing
        """Go on from a state."""


class HookGuard:
    """Keeps the hooks of a monitor from raising into the training; its next :meth:`MechanismMonitor.take` raises."""

    def __init__(self) -> None:
        self._error: Exception | None = None

    def guarded(self, hook: Callable[..., Any]) -> Callable[..., None]:
        """Wrap a hook: after the first error of any of them none is called any more."""

        @functools.wraps(hook)
        def guarded(*args: Any) -> None:
            if self._error is not None:
                return
            try:
                hook(*args)
            except Exception as error:  # noqa: BLE001 - a monitor must not break what it watches
                self._error = error

        return guarded

    def check(self) -> None:
        if self._error is not None:
            raise self._error


def by_layer(values: NDArray[np.float64], heads: Sequence[int]) -> list[NDArray[np.float64]]:
    """Split an array of the heads of all layers, one layer after the other, into one array a layer."""
    return np.split(values, np.cumsum(heads)[:-1])


def layer_and_head(layers: Sequence[int | str], heads: Sequence[int], head: str = "head") -> Place:
    """Places in an array of the heads of all layers."""
    places = [
        f"layer {layer}, {head} {number}" for layer, count in zip(layers, heads, strict=True) for number in range(count)
    ]
    return lambda index: places[index[0]]


def worst_of_each(
    measured: Mapping[str, tuple[NDArray[np.float64], Place]], details: Mapping[str, Any]
) -> MonitorResult:
    """The worst of each measurement, where it has a value (see :func:`worst_of`), and its place."""
    there = {name: found for name, found in measured.items() if not np.ma.getmaskarray(found[0]).all()}
    worst = {name: worst_of(name, *found) for name, found in there.items()}
    return MonitorResult(
        values={name: value for name, (value, _) in worst.items()},
        worst={name: place for name, (_, place) in worst.items()},
        details=details,
    )


def worst_of(name: str, values: NDArray[np.float64], place: Place) -> tuple[float, str]:
    """Find the worst value of a measurement, largest or smallest by its catalogue entry, and its place.

    A value that is not finite is the worst. What is masked has no value.

    >>> worst_of("qk_entropy", np.array([0.5, 0.25, 0.75]), layer_and_head([0, 4], [2, 1]))
    (0.25, 'layer 0, head 1')
    """
    sign = -1 if OBSERVABLE[name].merge == "min" else 1
    plain = np.ma.getdata(values)
    graded = np.where(np.isfinite(plain), sign * plain, np.inf)
    graded[np.ma.getmaskarray(values)] = -np.inf
    index = np.unravel_index(int(graded.argmax()), plain.shape)
    where = tuple(int(part) for part in index)
    return float(plain[where]), place(where)


def detached_copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone()
