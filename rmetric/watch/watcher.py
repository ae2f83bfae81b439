"""The loop of a watch: looks at all logs in turn, hands on the news, and sleeps longer while nothing happens."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

from rmetric.importers import AUTO
from rmetric.watch.news import News
from rmetric.watch.places import Places
from rmetric.watch.watched_log import WatchedLog
from rmetric.watch.watched_run import WatchedRun

INTERVAL_S = 1.0
SLOWEST = 5.0
"""Factor by which the interval grows while nothing happens."""
BACKOFF = 1.5


class Watcher:
    """Watches a log, or a folder into which runs write.

    Parameters
    ----------
    path
        File or folder; it need not be there yet.
    tell
        Receives the news, and whether the log was there with it before the watch began.
    interval_s
        Seconds between two looks while something happens; up to five times as many while nothing does.
    format, mapping
        As in :func:`rmetric.diagnosis.diagnose`.
    silent_after_s
        As in :class:`~rmetric.watch.watched_run.Silence`.
    """

    def __init__(
        self, path: Path, tell: Callable[[News, bool], None], *, interval_s: float = INTERVAL_S, format: str = AUTO,
        mapping: Mapping[str, str] | None = None, silent_after_s: float | None = None,
    ) -> None:  # fmt: skip
        self._places, self._tell, self._interval_s = Places(path), tell, interval_s
        within = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
        self._watched = partial(
            WatchedLog, format=format, mapping=mapping, silent_after_s=silent_after_s, within=within
        )
        self._logs: dict[Path, WatchedLog] = {}
        self._is_first_look = True

    @property
    def runs(self) -> list[WatchedRun]:
        return [run for log in self._logs.values() for run in log.runs]

    @property
    def problems(self) -> list[str]:
        """Why files cannot be read as logs, one sentence each."""
        return [log.problem for log in self._logs.values() if log.problem]

    @property
    def unread(self) -> list[str]:
        """Why files that were read before cannot be read any more, one sentence each."""
        return [log.unread for log in self._logs.values() if log.unread]

    @property
    def remarks(self) -> list[str]:
        """What is not watched or read any more, and the first damage of each run, a sentence each."""
        return [*self._places.left_out, *self.unread, *(run.damage for run in self.runs if run.damage)]

    def look(self, now: float) -> bool:
        """Look at all logs once; true if anything was new."""
        active = False
        found = self._places.logs()
        self._logs = {name: log for name, log in self._logs.items() if name in found or _stays(name, log, found)}
        for name, path in found.items():
            if name not in self._logs:
                self._logs[name] = self._watched(path)
            self._logs[name].move_to(path)
        for log in self._logs.values():
            grown, news = log.poll(now)
            active |= grown
            for one in news:
                self._tell(one, self._is_first_look)
        self._is_first_look = False
        return active

    def look_at_all_there_is(self, now: float) -> None:
        """The last look: what was put off is read, and all is judged."""
        self._places.pace.hurry()
        for log in self._logs.values():
            log.hurry()
        self.look(now)
        self.look(now)  # what a log brought last is judged when it brings nothing more

    def watch(self, after_look: Callable[[], object]) -> None:
        """Look until interrupted (``KeyboardInterrupt``); ``after_look`` is called after each look."""
        delay = self._interval_s
        while True:
            active = self.look(time.monotonic())
            after_look()
            delay = self._interval_s if active else min(BACKOFF * delay, SLOWEST * self._interval_s)
            time.sleep(delay)


def _stays(name: Path, log: WatchedLog, found: Collection[Path]) -> bool:
    """Whether a log that is no longer found counts: it has vanished, and is no part of a folder that is one log now."""
    is_part = log.path.exists() and any(folder in found for folder in name.parents)
    return bool(log.runs) and not is_part
