"""The end of a run: the event that its log ends with, and parts that are given back whatever happens."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar
from weakref import WeakMethod

from rmetric.errors import LOGGER
from rmetric.records import FAILURE, NAN_LOSS, SUCCESS, Event


class Failure(Protocol):
    """Step and reason of a run's failure."""

    @property
    def step(self) -> int: ...
    @property
    def reason(self) -> str: ...


class Closable(Protocol):
    """Something that holds hooks, threads or files."""

    def close(self) -> None: ...


Part = TypeVar("Part", bound=Closable | None)


class AtExit:
    """Calls a method when the program ends, if its object is still there: a loop that stops itself calls nobody.

    A process that was forked from this one leaves it alone.
    """

    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = WeakMethod(leave)
        self._process: int | None = os.getpid()
        atexit.register(self._end)

    @property
    def due(self) -> bool:
        """Whether the call at exit is due in this process: not in one that was forked later."""
        return self._process is not None and os.getpid() == self._process  # at the very end there is no ``os`` any more

    def _end(self) -> None:
        leave = self._leave() if self.due else None
        self.close()
        if leave is not None:
            leave()

    def close(self) -> None:
        self._process = None
        atexit.unregister(self._end)


def failed(step: int, reason: str) -> Event:
    return {"event": FAILURE, "step": step, "reason": reason}


def ended(step: int, failure: Failure | None, non_finite_since: int | None) -> Event:
    """Last event of a run that reached this step: with the failure that is told, a loss not finite, else success."""
    if failure is not None:
        return failed(failure.step, failure.reason)
    if non_finite_since is not None:
        return failed(non_finite_since, NAN_LOSS)
    return {"event": SUCCESS, "step": step}


@contextmanager
def closed_on_error() -> Iterator[Callable[[Part], Part]]:
    """Take parts as they are made; if a later one cannot be made, close those that were: nothing stays on the model."""
    made: list[Closable] = []

    def add(part: Part) -> Part:
        if part is not None:
            made.append(part)
        return part

    try:
        yield add
    except BaseException:
        close_all(reversed(made))
        raise


def close_all(parts: Iterable[Closable | None]) -> None:
    """Close every part; one that fails is told of and holds up no other."""
    for part in parts:
        try:
            if part is not None:
                part.close()
        except Exception as error:  # noqa: BLE001 - the other parts are to be given back as well
            LOGGER.warning("while the monitor was closed: %s", error)
