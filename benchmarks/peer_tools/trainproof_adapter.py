"""trainproof: ``trainproof epoch FILE`` on a finished log, ``trainproof watch FILE`` on a growing one."""

from __future__ import annotations

import re
from pathlib import Path

from peer_worker import Adapter, Finding, Growing, serve

ALARMS = {"FAIL": ("FAIL", "WARN"), "WARN": ("WARN",)}
"""Verdict → readings. ``FAIL`` is what makes the command exit with 1; PASS, NOT-CHECKED and INFO are no alarm."""
NAMED = (r"Steps: \[([^\]]*)\]", r"first at step ([\d.e+]+)", r"@step(\d+)")
"""Pattern by which the evidence of a finding names steps."""


class Trainproof(Adapter):
    """The functions that the two commands call: ``check_epoch``; ``poll_once``."""

    package = "trainproof"
    alarms = ("FAIL", "WARN")

    def __init__(self) -> None:
        from trainproof import epoch, watch

        self.check, self.poll = epoch.check_epoch, watch.poll_once

    def findings(self, log: Path) -> list[Finding]:
        report = self.check(log)
        if any(found["id"] == "TP-NO-RECORDS" for found in report["findings"]):
            raise ValueError("trainproof reads no record in the log")  # its command exits with 2: not judged
        return [
            Finding(found["id"], ALARMS.get(found["level"], ()), steps_of(found["evidence"]))
            for found in report["findings"]
        ]

    def live(self, growing: Growing) -> dict[str, list[int]]:
        """Steps at which the verdict becomes another one, which is when the watch prints its findings."""
        alerts: dict[str, list[int]] = {name: [] for name in self.alarms}
        verdict = None
        for _ in growing:
            verdict, changed, _ = self.poll(growing.path, "auto", verdict)
            for name in ALARMS.get(verdict, ()) if changed else ():
                alerts[name].append(growing.step)
        return alerts


def steps_of(evidence: str) -> tuple[int, ...]:
    """Steps that the evidence names.

    >>> steps_of("Steps: [402.0, 403.0]..."), steps_of("3 of 9 are non-finite; first at step 402. Weights")
    ((402, 403), (402,))
    """
    found = [text for pattern in NAMED for group in re.findall(pattern, evidence) for text in group.split(",")]
    return tuple(int(float(text.strip().rstrip("."))) for text in found if text.strip())


if __name__ == "__main__":
    serve(Trainproof, Trainproof.package)
