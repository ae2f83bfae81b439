"""Run mechanism monitors every so many steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from operator import methodcaller
from typing import Any, TypeVar

import torch
from torch import nn

from rmetric.errors import LOGGER, UserError, on_one_line
from rmetric.monitor.arguments import check_number
from rmetric.monitor.mechanism.alignment import GradientAlignment, UpdateAlignment
from rmetric.monitor.mechanism.attention import AttentionRows
from rmetric.monitor.mechanism.base import MechanismMonitor, MonitorResult
from rmetric.monitor.mechanism.execution import (
    BackgroundExecutor,
    Executor,
    InlineExecutor,
    PendingMeasurement,
    TaskOutcome,
    stream_for,
)
from rmetric.monitor.mechanism.qk_spectral import QkSpectral
from rmetric.monitor.mechanism.router import Router
from rmetric.monitor.mechanism.update import UpdateExtremes
from rmetric.registry import Registry

MONITORS: Registry[type[MechanismMonitor]] = Registry("mechanism monitor")
"""Mechanism monitors by name, in the order in which they are asked."""
for _kind in (QkSpectral, Router, AttentionRows, UpdateExtremes, UpdateAlignment, GradientAlignment):
    MONITORS.add(_kind.name, _kind)

Result = TypeVar("Result")
STRIDE = 32
"""Steps between measurements; docs/mechanism.md says what it costs."""
MonitorSelection = str | MechanismMonitor | Sequence[str | MechanismMonitor]
"""Monitors or names of monitors, one or several; ``"auto"``: all that the model has the mechanism for."""
AUTO = "auto"


class MechanismWatch:
    """Several monitors with one stride.

    A step is measured if its number is a multiple of the stride. Hooks stand on the model during these steps alone. A
    monitor that raises is given up with one warning; the others go on, and so does training.

    >>> import torch
    >>> model = torch.nn.Linear(4, 1)
    >>> MechanismWatch(model, torch.optim.SGD(model.parameters(), lr=0.1), monitors="auto").names
    ('update', 'update_alignment', 'gradient_alignment')

    Parameters
    ----------
    model, optimizer
        What is trained.
    monitors
        Monitors or their names; ``"auto"``: all that this model has the mechanism for in a form that they know. Which
        these are, and why the others are left out, is logged once (``INFO``).
    stride
        Steps between measurements, at least 1.
    executor
        Runs the work that need not be done at once; ``None``: on a GPU on a thread and a stream of its own, else at
        once (docs/mechanism.md says why).

    Raises
    ------
    UserError
        For an unknown name, for what is no monitor or stride, and for a monitor asked for by name that this model has
        no mechanism for.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        monitors: MonitorSelection = AUTO,
        stride: int = STRIDE,
        executor: Executor | None = None,
    ) -> None:
        check_number("stride", stride, example=STRIDE)
        self.stride = stride
        """Steps between measurements."""
        self._model, self._executor = model, executor
        self._monitors = {monitor.name: monitor for monitor in _chosen(model, optimizer, monitors)}
        self._stream: torch.cuda.Stream | None = None
        self._armed: list[str] = []
        self._given_up: list[str] = []
        self._arm_for(1)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the monitors that measure."""
        return tuple(self._monitors)

    def step(self, step: int) -> PendingMeasurement | None:
        """Measure a step, after its last backward pass and before its update; waits for nothing.

        Call it in every step. Returns the measurement of this step, ``None`` between two measurements. After a
        checkpoint that was taken elsewhere, call :meth:`load_state_dict` first.
        """
        tasks = {name: task for name, task in self._ask_armed("take").items() if task is not None}
        self._disarm()
        self._arm_for(step + 1)
        if not tasks:
            return None
        self._stream = self._stream or stream_for(self._model)
        executor = self._executor or (InlineExecutor if self._stream is None else BackgroundExecutor)
        return PendingMeasurement(step, executor(tasks, self._stream), self.summarise)

    def restarting(self, recompute: Callable[[], Result]) -> Callable[[], Result]:
        """Wrap the computation of a step so that it first forgets what was collected in the step."""

        def again() -> Result:
            self._ask_armed("restart")
            return recompute()

        return again

    def close(self) -> None:
        self._disarm()

    def give_up(self, name: str, error: Exception) -> None:
        """Go on without a monitor."""
        LOGGER.warning("the mechanism monitor %s is given up: %s", name, on_one_line(error))
        self._leave_out(name)

    def _leave_out(self, name: str) -> None:
        monitor = self._monitors.pop(name, None)
        self._armed = [other for other in self._armed if other != name]
        if monitor is not None:
            self._given_up.append(name)
            with suppress(Exception):
                monitor.disarm()

    def summarise(self, name: str, outcome: TaskOutcome) -> MonitorResult | None:
        """A monitor's summary of its numbers; ``None`` for one that was given up."""
        if isinstance(outcome, Exception):
            self.give_up(name, outcome)
            return None
        return self._ask(name, lambda monitor: monitor.summarise(outcome))

    def _arm_for(self, step: int) -> None:
        if step % self.stride == 0:
            self._armed = [*self._monitors]
            self._ask_armed("arm")

    def _disarm(self) -> None:
        self._ask_armed("disarm")
        self._armed = []

    def _ask_armed(self, question: str) -> dict[str, Any]:
        """Answers of the armed monitors to a method of theirs; ``None`` of one that was given up by that."""
        return {name: self._ask(name, methodcaller(question)) for name in [*self._armed]}

    def _ask(self, name: str, question: Callable[[MechanismMonitor], Result]) -> Result | None:
        """Ask a monitor; one that raises is given up."""
        monitor = self._monitors.get(name)
        if monitor is None:
            return None
        try:
            return question(monitor)
        except Exception as error:  # noqa: BLE001 - a monitor must not break what it watches
            self.give_up(name, error)
            return None

    def state_dict(self) -> dict[str, Any]:
        """State that later measurements depend on: tensors on the CPU and plain values."""
        told = {name: self._ask(name, methodcaller("state_dict")) for name in self.names}
        states = {name: told[name] for name in self.names}
        return {"stride": self.stride, "monitors": states, "given_up": list(self._given_up)}

    def load_state_dict(self, state: Mapping[str, Any], step: int) -> None:
        """Go on from a state that was taken after a step; raises ``ValueError`` for another stride or monitors."""
        given_up = state["given_up"]
        if state["stride"] != self.stride or {*state["monitors"], *given_up} != {*self._monitors}:
            raise ValueError(
                f"the checkpoint's mechanism watch has the stride {state['stride']} and {sorted(state['monitors'])}, "
                f"this one {self.stride} and {sorted(self._monitors)}; resume with the settings of the first run"
            )
        self._disarm()
        for name in given_up:
            LOGGER.warning("the mechanism monitor %s was given up in the run that is resumed", name)
            self._leave_out(name)
        self._arm_for(step + 1)
        for name, item in state["monitors"].items():
            self._ask(name, methodcaller("load_state_dict", item))


def _chosen(model: nn.Module, optimizer: torch.optim.Optimizer, monitors: MonitorSelection) -> list[MechanismMonitor]:
    if monitors == AUTO:
        return _all_there_are(model, optimizer)
    several = (*monitors,) if isinstance(monitors, list | tuple) else (monitors,)
    for item in several:
        if not isinstance(item, str | MechanismMonitor):
            raise UserError(
                f"mechanism monitors are 'auto', or names or objects, such as 'update' or Router(model); not {item!r}"
            )
    return [MONITORS[item].of(model, optimizer) if isinstance(item, str) else item for item in several]


def _all_there_are(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[MechanismMonitor]:
    """Every monitor that this model has the mechanism for."""
    found, left_out = [], []
    for name in MONITORS:
        try:
            found.append(MONITORS[name].of(model, optimizer))
        except UserError as error:
            left_out.append(f"{name} ({error})")
        except Exception as error:  # noqa: BLE001 - a form of its own must not end the training
            left_out.append(f"{name} ({error!r})")
    names = ", ".join(monitor.name for monitor in found)
    LOGGER.info("mechanism monitors of this model: %s; left out: %s", names, ", ".join(left_out) or "none")
    return found
