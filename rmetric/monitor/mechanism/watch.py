"""Run mechanism monitors every so many steps, in the background, and bring what they found to the host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import nn

from rmetric.errors import UserError
from rmetric.monitor.mechanism.alignment import GradientAlignment, UpdateAlignment
from rmetric.monitor.mechanism.attention import AttentionRows
from rmetric.monitor.mechanism.base import LOGGER, HostArrays, MechanismMonitor, MonitorResult, Task
from rmetric.monitor.mechanism.qk_spectral import QkSpectral
from rmetric.monitor.mechanism.router import Router
from rmetric.monitor.mechanism.update import UpdateExtremes
from rmetric.records import Event
from rmetric.registry import Registry

MONITORS: Registry[type[MechanismMonitor]] = Registry("mechanism monitor")
"""In the order in which they are asked."""
for _kind in (QkSpectral, Router, AttentionRows, UpdateExtremes, UpdateAlignment, GradientAlignment):
    MONITORS.add(_kind.name, _kind)


TaskOutcome = HostArrays | Exception
"""What a task found, or why it did not."""


class BackgroundExecutor:
    """Some tasks on their way. Starting them costs a thread; :meth:`results` waits for their end.

    The thread lives as long as the tasks do, so that none is left over between measurements. On a GPU it works on the
    stream that is given, behind what training has queued so far: the decompositions wait for the device, but only this
    thread does.

    Parameters
    ----------
    tasks
        By name.
    stream
        ``None``: not on an accelerator.
    """

    def __init__(self, tasks: Mapping[str, Task], stream: torch.cuda.Stream | None) -> None:
        self._tasks, self._stream = dict(tasks), stream
        self._outcomes: dict[str, TaskOutcome] = {}
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(stream.device))
        self._thread = threading.Thread(target=self._work, name="rmetric mechanism", daemon=True)
        self._thread.start()

    def results(self) -> dict[str, TaskOutcome]:
        """What came out, by name."""
        self._thread.join()
        self._tasks = {}  # the tensors that they hold
        return self._outcomes

    def _work(self) -> None:
        with torch.cuda.stream(self._stream) if self._stream is not None else nullcontext():
            self._outcomes = run_tasks(self._tasks)


class InlineExecutor:
    """The same on the thread that asks: what :class:`BackgroundExecutor` is compared with."""

    def __init__(self, tasks: Mapping[str, Task], stream: torch.cuda.Stream | None) -> None:
        self._outcomes = run_tasks(tasks)

    def results(self) -> dict[str, TaskOutcome]:
        return self._outcomes


Where = Callable[[Mapping[str, Task], Any], BackgroundExecutor | InlineExecutor]


def run_tasks(tasks: Mapping[str, Task]) -> dict[str, TaskOutcome]:
    """Do the tasks one after the other; an error ends its own task alone."""
    outcomes: dict[str, TaskOutcome] = {}
    for name, task in tasks.items():
        try:
            with torch.no_grad():
                outcomes[name] = {key: value.double().cpu().numpy() for key, value in task().items()}
        except Exception as error:  # noqa: BLE001 - the watch tells of it and goes on without that monitor
            outcomes[name] = error
    return outcomes


def stream_for(model: nn.Module) -> torch.cuda.Stream | None:
    """A stream on the device of a model; ``None`` for one that is not on a GPU."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    return torch.cuda.Stream(device) if device.type == "cuda" else None


DIGITS = 5
"""Significant digits of a detail in the log."""


class Work(Protocol):
    """Tasks on their way: :class:`~rmetric.monitor.mechanism.watch.BackgroundExecutor` or ``InlineExecutor``."""

    def results(self) -> Mapping[str, TaskOutcome]:
        """What came out, by name, as soon as all has."""


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """What all monitors say of one step."""

    values: Mapping[str, float] = field(default_factory=dict)
    """By name; NaN and infinity were measured and are not finite."""
    worst: Mapping[str, str] = field(default_factory=dict)
    """Name → layer, head, expert or tensor."""
    events: Sequence[Event] = ()
    """One MECHANISM event a monitor, with all locations."""


class PendingMeasurement:
    """The measurements of one step, somewhere between the device and the host.

    Parameters
    ----------
    step
        Its number.
    work
        Where they are worked out.
    summarise
        From a monitor's name and what came out to what it says of it; ``None``: nothing.
    """

    def __init__(self, step: int, work: Work, summarise: Callable[[str, TaskOutcome], MonitorResult | None]) -> None:
        self._step, self._work, self._summarise = step, work, summarise

    def read(self) -> MechanismResult:
        """What was found, as soon as it has arrived."""
        values: dict[str, float] = {}
        worst: dict[str, str] = {}
        events: list[Event] = []
        for name, found in self._work.results().items():
            measured = self._summarise(name, found)
            if measured is None:
                continue
            values |= measured.values
            worst |= measured.worst
            details = {key: _rounded(value) for key, value in measured.details.items()}
            event = {"event": "MECHANISM", "step": self._step, "monitor": name, "worst": dict(measured.worst)}
            events.append({**event, "details": details})
        return MechanismResult(values=values, worst=worst, events=events)


def _rounded(value: Any) -> Any:
    """Numbers as the log has them, however deep they are nested; whole numbers and texts as they are."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


Answer = TypeVar("Answer")
STRIDE = 32
"""Steps between measurements; docs/mechanism.md says what it costs."""
MonitorSelection = Sequence[str | MechanismMonitor] | Literal["auto"]
"""Monitors, names of monitors, or all that the model has the mechanism for."""


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
    model
        The module that is trained.
    optimizer
        Its optimizer.
    monitors
        Monitors or their names; ``"auto"``: all that this model has the mechanism for.
    stride
        Steps between measurements, at least 1.
    where
        Where the work is done that need not be done at once; ``None``: on a GPU on a thread and a stream of its own,
        else at once (docs/mechanism.md says why).

    Raises
    ------
    UserError
        For an unknown name, and for a monitor asked for by name that this model has no mechanism for.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        monitors: MonitorSelection = "auto",
        stride: int = STRIDE,
        where: Where | None = None,
    ) -> None:
        if stride < 1:
            raise UserError(f"the stride of a mechanism watch is a number of steps from 1 on, not {stride}")
        self.stride = stride
        """Steps between measurements."""
        self._model, self._where = model, where
        self._monitors = {monitor.name: monitor for monitor in _chosen(model, optimizer, monitors)}
        self._stream: torch.cuda.Stream | None = None
        self._armed: list[str] = []
        self._arm_for(1)

    @classmethod
    def of(
        cls, model: nn.Module, optimizer: torch.optim.Optimizer, asked: MechanismWatch | MonitorSelection
    ) -> MechanismWatch:
        """A watch as it is, or one with these monitors and the default stride."""
        return asked if isinstance(asked, MechanismWatch) else cls(model, optimizer, monitors=asked)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the monitors that measure."""
        return tuple(self._monitors)

    def step(self, step: int) -> PendingMeasurement | None:
        """To be called in every step after its last backward pass and before its update; waits for nothing.

        Returns what was measured in this step; ``None`` between two measurements. After a checkpoint that was taken
        elsewhere, call :meth:`load_state_dict` first.
        """
        tasks = {name: task for name in [*self._armed] if (task := self._ask(name, methodcaller("take"))) is not None}
        self._disarm()
        self._arm_for(step + 1)
        if not tasks:
            return None
        self._stream = self._stream or stream_for(self._model)
        where = self._where or (InlineExecutor if self._stream is None else BackgroundExecutor)
        return PendingMeasurement(step, where(tasks, self._stream), self.summarise)

    def restarting(self, recompute: Callable[[], Answer]) -> Callable[[], Answer]:
        """The same computation of a step, before which everything that was collected in the step is forgotten."""

        def again() -> Answer:
            for name in [*self._armed]:
                self._ask(name, methodcaller("restart"))
            return recompute()

        return again

    def close(self) -> None:
        """Give every hook back. May be called twice."""
        self._disarm()

    def give_up(self, name: str, error: Exception) -> None:
        """Go on without a monitor."""
        LOGGER.warning("the mechanism monitor %s is given up: %s: %s", name, type(error).__name__, error)
        monitor = self._monitors.pop(name, None)
        self._armed = [other for other in self._armed if other != name]
        if monitor is not None:
            with suppress(Exception):
                monitor.disarm()

    def summarise(self, name: str, found: Any) -> MonitorResult | None:
        """What a monitor says of its numbers; ``None`` for one that was given up."""
        if isinstance(found, Exception):
            self.give_up(name, found)
            return None
        return self._ask(name, lambda monitor: monitor.summarise(found))

    def _arm_for(self, step: int) -> None:
        if step % self.stride == 0:
            self._armed = [*self._monitors]
            for name in [*self._armed]:
                self._ask(name, methodcaller("arm"))

    def _disarm(self) -> None:
        for name in [*self._armed]:
            self._ask(name, methodcaller("disarm"))
        self._armed = []

    def _ask(self, name: str, question: Callable[[MechanismMonitor], Any]) -> Any:
        """A monitor's answer; one that raises is given up."""
        monitor = self._monitors.get(name)
        if monitor is None:
            return None
        try:
            return question(monitor)
        except Exception as error:  # noqa: BLE001 - a monitor must not break what it watches
            self.give_up(name, error)
            return None

    def state_dict(self) -> dict[str, Any]:
        """What the measurements to come depend on: tensors on the CPU and plain values."""
        return {"stride": self.stride, "monitors": {name: item.state_dict() for name, item in self._monitors.items()}}

    def load_state_dict(self, state: Mapping[str, Any], step: int) -> None:
        """Go on from a state that was taken after a step; raises ``ValueError`` for another stride or monitors."""
        if state["stride"] != self.stride or {*state["monitors"]} != {*self._monitors}:
            raise ValueError(
                f"the checkpoint's mechanism watch has the stride {state['stride']} and {sorted(state['monitors'])}, "
                f"this one {self.stride} and {sorted(self._monitors)}; resume with the settings of the first run"
            )
        self._disarm()
        self._arm_for(step + 1)
        for name, item in state["monitors"].items():
            self._monitors[name].load_state_dict(item)


def _chosen(model: nn.Module, optimizer: torch.optim.Optimizer, monitors: MonitorSelection) -> list[MechanismMonitor]:
    if isinstance(monitors, str) and monitors != "auto":
        monitors = (monitors,)
    if not isinstance(monitors, str):
        return [MONITORS[item].of(model, optimizer) if isinstance(item, str) else item for item in monitors]
    found = []
    for name in MONITORS:
        try:
            found.append(MONITORS[name].of(model, optimizer))
        except UserError as error:
            LOGGER.debug("no mechanism monitor %s: %s", name, error)
    return found
