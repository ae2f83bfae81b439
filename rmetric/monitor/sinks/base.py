"""The contract of a sink, which receives a run's events, and the fan-out in which one sink cannot harm another."""

from __future__ import annotations

import errno
import math
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any, ClassVar

from rmetric.errors import LOGGER, UserError, on_one_line
from rmetric.records import VALIDATION

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Sink(ABC):
    """Takes every event of a run's log, in the order of the log.

    An event is a mapping in the log's own field names, METRICS records included: ``event``, ``step`` (all but
    EXPERIMENT_START have one) and what the kind of event brings. A field that was not measured is left out; a float
    that is not finite was measured and is not finite.

    A sink may raise: :class:`Sinks` then drops it. ``str(sink)`` is what the user knows it by.
    """

    noun: ClassVar[str] = "this sink"
    """Name, in a warning, of what stops when it fails."""
    named: ClassVar[bool] = True
    """Whether it is told a name of the run (``experiment_id``) where the user gave none. The log is not, so that
    nothing in it depends on its place or on the time."""

    def start(self, config: Mapping[str, Any], *, resume_step: int | None) -> None:  # noqa: B027 - some begin nothing
        """Begin the run; called once, before any event.

        Parameters
        ----------
        config
            The configuration that EXPERIMENT_START holds.
        resume_step
            Last step that counts as done when an earlier run is taken up again; ``None``: a new run.
        """

    @abstractmethod
    def event(self, event: Mapping[str, Any]) -> None:
        """Receive one event. It must not be changed, nor kept."""

    def flush(self) -> None:  # noqa: B027 - most sinks hold nothing back
        """Hand on whatever is still held back."""

    def close(self) -> None:  # noqa: B027 - some have nothing to close
        """End: no event will follow. It may be called twice, and without :meth:`start`."""

    def state_dict(self) -> dict[str, Any]:
        """State that a resumed run needs to find this run's place again; plain values."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - most sinks need nothing
        """Take up :meth:`state_dict`; called before :meth:`start`."""


class Sinks:
    """Hands everything to several sinks. One that raises is dropped with one warning; training goes on.

    ``KeyboardInterrupt`` and ``SystemExit`` pass through. Events may come from several threads.

    ``name`` tells the name of a run whose ``config`` has none, and is asked for each sink: that of the log is known
    when it is open.
    """

    def __init__(self, sinks: Sequence[Sink], name: Callable[[], str] = str) -> None:
        seen: Counter[str] = Counter()
        self._sinks: dict[str, Sink] = {}
        for sink in sinks:
            kind = type(sink).__name__
            self._sinks[f"{kind}/{seen[kind]}"] = sink
            seen[kind] += 1
        self._left: dict[str, Any] = {}
        """Last state of those that have failed: a resumed run is to find their places, too."""
        self._name = name
        self._last_step: int | None = None
        self._one_at_a_time = threading.RLock()

    @property
    def active(self) -> tuple[Sink, ...]:
        """The sinks that have not failed."""
        return tuple(self._sinks.values())

    def start(self, config: Mapping[str, Any], *, resume_step: int | None) -> None:
        self._last_step = resume_step
        self._each(lambda sink: sink.start(self._named(config) if sink.named else config, resume_step=resume_step))

    def _named(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        name = self._name()
        return {"experiment_id": name, **config} if name else config

    def event(self, event: Mapping[str, Any]) -> None:
        self._each(lambda sink: sink.event(event))
        self._last_step = event.get("step", self._last_step)

    def flush(self) -> None:
        self._each(lambda sink: sink.flush())

    def close(self) -> None:
        self._each(lambda sink: sink.close())

    def state_dict(self) -> dict[str, Any]:
        """The state of every sink, by its kind and number: a resumed run may have others."""
        told = self._each(lambda sink: sink.state_dict())
        return {**self._left, **{place: state for place, state in told.items() if state is not None}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up :meth:`state_dict`; a sink that had no state then keeps its own."""
        for number, place in enumerate(list(self._sinks)):
            own = state.get(place, state.get(str(number), {}))  # an older checkpoint has numbers alone
            self._guarded(place, lambda sink: sink.load_state_dict(own))  # noqa: B023 - called at once

    def _each(self, call: Callable[[Sink], Any]) -> dict[str, Any]:
        with self._one_at_a_time:
            return {place: self._guarded(place, call) for place in list(self._sinks)}

    def _guarded(self, place: str, call: Callable[[Sink], Any]) -> Any:
        sink = self._sinks[place]
        try:
            return call(sink)
        except Exception as error:  # noqa: BLE001 - whatever a sink does, training goes on
            del self._sinks[place]
            with suppress(Exception):
                self._left[place] = sink.state_dict()
            stops = "never starts" if self._last_step is None else f"stops at step {self._last_step}"
            LOGGER.warning("%s: %s; %s %s, training goes on", sink, _in_words(error), sink.noun, stops)
            with suppress(Exception):
                sink.close()


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in _NO_SPACE:
        return "the disk is full"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    return on_one_line(error)


def optional_module(name: str, what: str, package: str = "'rmetric[sinks]'") -> ModuleType:
    """Import what one part alone needs; raises :class:`UserError` that says how to get it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(f"{what} is not installed; pip install {package}") from error


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """Numbers of a METRICS record by log name, without its step; truth values are no numbers.

    Those that the mechanism monitors measured stand beside the others.
    """
    inside = record.get("mechanism", {})
    broken = dict.fromkeys(inside.get("non_finite", ()), math.inf)
    return {
        name: float(value)
        for name, value in {**record, **inside, **broken}.items()
        if name != "step" and isinstance(value, int | float) and not isinstance(value, bool)
    }


def points(event: Mapping[str, Any]) -> dict[str, float]:
    """Numbers of an event that a curve shows at its step; an evaluation at the one after which it was made."""
    if event.get("event") not in ("METRICS", VALIDATION):
        return {}
    numbers = scalars(event)
    if event["event"] == "METRICS":
        numbers.pop("validation_loss", None)
    return numbers


def sentence(event: Mapping[str, Any]) -> str:
    """An event other than METRICS as one line for people: its message if it has one, else its fields."""
    if event.get("message"):
        return str(event["message"])
    return ", ".join(f"{name}: {value}" for name, value in event.items() if name not in ("event", "step"))
