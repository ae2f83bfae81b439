"""Run the tasks of mechanism monitors, in the background on a GPU, and collect their results on the host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from rmetric.monitor.mechanism.base import HostArrays, MonitorResult, Task
from rmetric.monitor.tensors import own_stream
from rmetric.plain_numbers import rounded
from rmetric.records import Event

DIGITS = 5
"""Significant digits of a detail in the log."""
TaskOutcome = HostArrays | Exception
"""The result of a task, or the error that ended it."""


def run_tasks(tasks: Mapping[str, Task]) -> dict[str, TaskOutcome]:
    """Run the tasks one after the other; an error ends its own task alone."""
    outcomes: dict[str, TaskOutcome] = {}
    for name, task in tasks.items():
        try:
            with torch.no_grad():
                outcomes[name] = {key: value.double().cpu().numpy() for key, value in task().items()}
        except Exception as error:  # noqa: BLE001 - the watch logs it and goes on without that monitor
            outcomes[name] = error
    return outcomes


class BackgroundExecutor:
    """Runs tasks on a thread of their own. Starting costs a thread; :meth:`results` waits for its end.

    The thread lives as long as the tasks do, so that none is left over between measurements. On a GPU it works on the
    given stream, behind what training has queued so far: the decompositions wait for the device, but only this thread
    does.
    """

    def __init__(self, tasks: Mapping[str, Task], stream: torch.cuda.Stream | None) -> None:
        self._tasks, self._stream = dict(tasks), stream
        self._outcomes: dict[str, TaskOutcome] = {}
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(stream.device))
        self._thread = threading.Thread(target=self._work, name="rmetric mechanism", daemon=True)
        self._thread.start()

    def results(self) -> dict[str, TaskOutcome]:
        """Outcome of each task by name; waits until all are done."""
        self._thread.join()
        self._tasks = {}  # frees the tensors that they hold
        return self._outcomes

    def _work(self) -> None:
        with torch.cuda.stream(self._stream):
            self._outcomes = run_tasks(self._tasks)


class InlineExecutor:
    """Runs tasks at once on the calling thread: the reference for :class:`BackgroundExecutor`."""

    def __init__(self, tasks: Mapping[str, Task], stream: torch.cuda.Stream | None) -> None:
        self._outcomes = run_tasks(tasks)

    def results(self) -> dict[str, TaskOutcome]:
        return self._outcomes


RunningTasks = BackgroundExecutor | InlineExecutor
Executor = Callable[[Mapping[str, Task], torch.cuda.Stream | None], RunningTasks]


def stream_for(model: nn.Module) -> torch.cuda.Stream | None:
    """CUDA stream on the device of a model; ``None`` if the model is not on a GPU."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    return own_stream(device)


@dataclass(frozen=True, kw_only=True)
class MechanismResult:
    """The results of all monitors in one step."""

    values: Mapping[str, float] = field(default_factory=dict)
    """Measurements by name; NaN and infinity were measured and are not finite."""
    worst: Mapping[str, str] = field(default_factory=dict)
    """Name → layer, head, expert or tensor."""
    events: Sequence[Event] = ()
    """One MECHANISM event a monitor, with all locations."""


class PendingMeasurement:
    """The measurements of one step that are not on the host yet.

    ``summarise`` turns a monitor's name and outcome into its result; ``None``: it has none.
    """

    def __init__(
        self, step: int, tasks: RunningTasks, summarise: Callable[[str, TaskOutcome], MonitorResult | None]
    ) -> None:
        self._step, self._tasks, self._summarise = step, tasks, summarise

    def read(self) -> MechanismResult:
        """The results; waits for them."""
        values: dict[str, float] = {}
        worst: dict[str, str] = {}
        events: list[Event] = []
        for name, outcome in self._tasks.results().items():
            result = self._summarise(name, outcome)
            if result is None:
                continue
            values |= result.values
            worst |= result.worst
            event = {"event": "MECHANISM", "step": self._step, "monitor": name, "worst": dict(result.worst)}
            events.append({**event, "details": rounded(result.details, DIGITS)})
        return MechanismResult(values=values, worst=worst, events=events)
