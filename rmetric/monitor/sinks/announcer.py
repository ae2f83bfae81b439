"""Tell people of a run through ``logging``: its alerts and repairs as they come, and at its end one line."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rmetric.errors import LOGGER
from rmetric.monitor.sinks.base import Sink
from rmetric.monitor.sinks.jsonl import JsonlSink
from rmetric.state import restore, state_of
from rmetric.verdict import RunSummary, is_news


class Announcer(Sink):
    """Logs to ``logging.getLogger("rmetric")`` every event with a message, as a warning, and a closing line.

    Where nothing is configured, Python prints warnings to standard error, so that nobody has to set up anything to see
    an alert. The closing line (verdict, alerts, repairs, log) is a warning too, unless the logger shows what is less:
    then that of a run in order is information.

    ``log``, which the closing line names, is told after this sink.
    """

    noun = "the announcement"

    def __init__(self, log: JsonlSink | None = None) -> None:
        self._log = log
        self._summary = RunSummary()
        self._open = False

    def __str__(self) -> str:
        return "logging"

    def start(self, config: Mapping[str, Any], *, resume_step: int | None) -> None:
        self._open = True

    def event(self, event: Mapping[str, Any]) -> None:
        """Count one event; tell of it if it is news."""
        self._summary.note(event)
        if is_news(event):
            LOGGER.warning("R-Metric: %s", event["message"])

    def close(self) -> None:
        """Say how the run was, once."""
        if not self._open:
            return
        self._open = False
        quietly = self._summary.in_order and LOGGER.isEnabledFor(logging.INFO)
        where = _where(self._log) if self._log is not None else ""
        LOGGER.log(logging.INFO if quietly else logging.WARNING, "R-Metric: %s%s", self._summary.sentence, where)

    def state_dict(self) -> dict[str, Any]:
        return dict(state_of(self._summary))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state:
            restore(self._summary, state)


def _where(log: JsonlSink) -> str:
    """Place of a log, and what a reader has to know if it lacks lines, as the end of a sentence."""
    if not log.has_begun:
        return "; there is no log"
    harm = "stops before the end"
    with suppress(OSError):
        if log.is_open:
            log.look()
            harm = log.harm
    return f"; the log is {log}{f', which {harm}' if harm else ''}"
