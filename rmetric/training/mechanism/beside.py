"""Work that runs beside the training: on a thread of its own, and on an accelerator on a stream of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from rmetric.training.mechanism.base import Arrays, Task

Outcome = Arrays | Exception
"""What a task found, or why it did not."""


class Beside:
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
        self._outcomes: dict[str, Outcome] = {}
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(stream.device))
        self._thread = threading.Thread(target=self._work, name="rmetric mechanism", daemon=True)
        self._thread.start()

    def results(self) -> dict[str, Outcome]:
        """What came out, by name."""
        self._thread.join()
        self._tasks = {}  # the tensors that they hold
        return self._outcomes

    def _work(self) -> None:
        with torch.cuda.stream(self._stream) if self._stream is not None else nullcontext():
            self._outcomes = worked_out(self._tasks)


class AtOnce:
    """The same on the thread that asks: what :class:`Beside` is compared with."""

    def __init__(self, tasks: Mapping[str, Task], stream: torch.cuda.Stream | None) -> None:
        self._outcomes = worked_out(tasks)

    def results(self) -> dict[str, Outcome]:
        return self._outcomes


Where = Callable[[Mapping[str, Task], Any], Beside | AtOnce]


def worked_out(tasks: Mapping[str, Task]) -> dict[str, Outcome]:
    """Do the tasks one after the other; an error ends its own task alone."""
    outcomes: dict[str, Outcome] = {}
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
