"""runmedic: ``runmedic diagnose FILE`` on a log. It does not watch one that grows."""

from __future__ import annotations

from pathlib import Path

from peer_worker import Adapter, Finding, Growing, serve

ALARMS = {"critical": ("critical", "warning"), "warning": ("warning",), "info": ()}
"""Severity → readings; ``critical`` is the gravest that --fail-on takes. It has no default."""


class Runmedic(Adapter):
    """The functions that the command calls: ``loaders.load``, ``roles.detect`` and ``run_checks``."""

    package = "runmedic"
    alarms = ("critical", "warning")

    def __init__(self) -> None:
        from runmedic import checks, loaders, roles

        self.load, self.roles, self.check = loaders.load, roles.detect, checks.run_checks

    def findings(self, log: Path) -> list[Finding]:
        runs = self.load(str(log))
        if not runs:
            raise ValueError("runmedic finds no training metrics in the log")  # its command exits: not judged
        return [
            Finding(found.check, ALARMS[found.severity], () if found.step is None else (int(found.step),))
            for run in runs
            for found in self.check(run, self.roles(run, {}))
        ]

    def live(self, growing: Growing) -> dict[str, list[int]]:
        return {}


if __name__ == "__main__":
    serve(Runmedic, Runmedic.package)
