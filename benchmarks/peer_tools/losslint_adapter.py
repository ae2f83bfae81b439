"""losslint: ``losslint check FILE`` on a finished log, ``losslint watch FILE`` on a growing one."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

from peer_worker import ALARMS, Adapter, Finding, Growing, serve

ANNOUNCED = re.compile(r"\[\d\d:\d\d:\d\d\] (error|warning|info) \w+: ")


class _Over(Exception):  # noqa: N818 - it ends the watch, nothing is wrong
    """The log grows no more."""


class Losslint(Adapter):
    """The functions that the two commands call: ``load_run`` and ``run_all_checks``; ``run_watch``."""

    package = "losslint"
    alarms = ("error", "warning")  # error is the default of --fail-severity: the exit status is 1 from there on

    def __init__(self) -> None:
        from losslint import checks, parsing, watch

        self.check, self.load, self.watch = checks.run_all_checks, parsing.load_run, watch

    def findings(self, log: Path) -> list[Finding]:
        return [
            Finding(found.check, ALARMS[found.severity], tuple(found.details.get("steps", ())))
            for found in self.check(self.load(log))
        ]

    def live(self, growing: Growing) -> dict[str, list[int]]:
        """Steps at which the watch announces a new finding; its clock is ours, one poll after every write."""
        alerts: dict[str, list[int]] = {name: [] for name in self.alarms}
        writes = iter(growing)

        def out(text: str) -> None:
            announced = ANNOUNCED.match(text)
            for name in ALARMS[announced[1]] if announced else ():
                alerts[name].append(growing.step)

        def sleep(_: Any) -> None:
            if next(writes, None) is None:
                raise _Over

        next(writes, None)
        with contextlib.suppress(_Over):
            self.watch.run_watch(growing.path, self.watch.WatchOptions(), out=out, sleep=sleep)
        return alerts


if __name__ == "__main__":
    serve(Losslint, Losslint.package)
