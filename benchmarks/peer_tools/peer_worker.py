"""The half that all adapters share. It runs in the interpreter that has the tool: standard library only.

The first line on standard output says which version answers, or what is missing. From then on every line on standard
input is a task, and every line on standard output the answer to it:

    {"log": "7.jsonl", "cuts": [310, 600], "poll": 1}
    {"verdicts": [["FAIL", "WARN"], ["FAIL", "WARN"]], "named": {…}, "live": {…}, "rules": […], "seconds": {…},
     "errors": {}}

``cuts`` are numbers of records: the tool is asked for its verdict on the first 310 records, then on all 600. The last
one is the whole log. A task with ``"parts": ["findings"]`` is answered with every finding on the whole log alone, as
``[rule, step or null]``.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import platform
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PARTS = ("verdicts", "named", "live")
"""What is asked about a log unless the task says otherwise."""
ALARMS = {"error": ("error", "warning"), "warning": ("warning",), "info": ()}
"""Severity → under which readings it is an alarm, of tools that have these three."""


@dataclass(frozen=True)
class Finding:
    """One thing that a tool says about a log."""

    rule: str
    """The tool's name for it."""
    alarms: tuple[str, ...]
    """Under which of the adapter's readings it is an alarm; none: the tool only remarks on it."""
    steps: tuple[int, ...] = ()
    """Training steps that it names."""


class Adapter(ABC):
    """A tool, called the way its users call it, with all its defaults."""

    package = ""
    """Name on the package index."""
    alarms: tuple[str, ...] = ()
    """Verdicts that may be taken for an alarm, the tool's own default first."""

    @abstractmethod
    def findings(self, log: Path) -> list[Finding]:
        """Verdict of the tool's command for finished runs on a log."""

    @abstractmethod
    def live(self, growing: Growing) -> dict[str, list[int]]:
        """Reading → steps at which the tool, watching the log as it grows, alerts. No reading without a live alert."""


class Growing:
    """A log that grows under the tool's eyes, ``poll`` records at a time; ``step`` is the last one written."""

    def __init__(self, path: Path, lines: Sequence[str], poll: int) -> None:
        self.path, self.lines, self.poll = path, lines, poll
        self.step = -1

    def __iter__(self) -> Iterator[list[str]]:
        """The lines that are new; they are in the file already."""
        for first in range(0, len(self.lines), self.poll):
            new = list(self.lines[first : first + self.poll])
            with open(self.path, "a", encoding="utf-8") as file:
                file.writelines(new)
            self.step = json.loads(new[-1])["step"]
            yield new


def serve(make: Callable[[], Adapter], package: str) -> None:
    """Answer tasks until standard input ends."""
    answers = sys.stdout
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            adapter = make()
        found = version(package)
    except (ImportError, PackageNotFoundError) as error:
        _write(answers, {"missing": first_line(error)})
        return
    _write(answers, {"version": found, "python": platform.python_version(), "alarms": adapter.alarms})
    for line in sys.stdin:
        task = json.loads(line)
        with contextlib.redirect_stdout(io.StringIO()):  # the tools talk; the answers must stand alone
            reply = answer(adapter, task)
        _write(answers, reply)


def answer(adapter: Adapter, task: dict[str, Any]) -> dict[str, Any]:
    """All that is asked about one log; a part in which the tool raises is ``None`` and has its error."""
    lines = Path(task["log"]).read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    reply: dict[str, Any] = {"seconds": {}, "errors": {}}
    with tempfile.TemporaryDirectory() as folder:
        shelf = _Shelf(adapter, lines, Path(folder))
        parts = {
            "verdicts": lambda: shelf.verdicts(task["cuts"]),
            "named": shelf.named,
            "live": lambda: adapter.live(Growing(Path(folder) / "live.jsonl", lines, task["poll"])),
            "findings": lambda: listed(adapter.findings(Path(task["log"]))),
        }
        for part in task.get("parts", PARTS):
            work = parts[part]
            started = time.perf_counter()
            try:
                reply[part] = work()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a tool does, the next log is judged
                reply[part], reply["errors"][part] = None, first_line(error)
            reply["seconds"][part] = time.perf_counter() - started
        reply["seconds"]["verdict"] = shelf.seconds
        reply["rules"] = sorted({finding.rule for finding in shelf.whole or ()})
    return reply


def listed(findings: Sequence[Finding]) -> list[tuple[str, int | None]]:
    """Findings that are an alarm under some reading, each with the first step that it names, if it names one."""
    return [(found.rule, min(found.steps, default=None)) for found in findings if found.alarms]


class _Shelf:
    """Beginnings of one log, each judged from scratch."""

    def __init__(self, adapter: Adapter, lines: Sequence[str], folder: Path) -> None:
        self.adapter, self.lines, self.folder = adapter, lines, folder
        self.whole: list[Finding] | None = None
        """Verdict on the whole log; ``None`` before, or if the tool failed on it."""
        self.seconds = math.nan
        """Time of the verdict on the whole log."""

    @cached_property
    def steps(self) -> list[int]:
        """Step of each record; findings alone are asked about logs of any format."""
        return [json.loads(line)["step"] for line in self.lines]

    def judge(self, records: int) -> list[Finding]:
        """Findings on the first so many records."""
        log = self.folder / "train.jsonl"
        log.write_text("".join(self.lines[:records]), encoding="utf-8")
        return self.adapter.findings(log)

    def verdicts(self, cuts: Sequence[int]) -> list[list[str]]:
        """Readings under which each beginning is an alarm."""
        raised = []
        for records in cuts:
            started = time.perf_counter()
            findings = self.judge(records)
            self.seconds = time.perf_counter() - started
            raised.append([name for name in self.adapter.alarms if any(name in found.alarms for found in findings)])
        self.whole = findings
        return raised

    def named(self) -> dict[str, dict[str, list[int]]]:
        """Reading → steps that the verdict on the whole log names, and those that can be believed.

        A step is confirmed if the same rule names the same step when the log ends there: only then could the alert
        have been given at that step.
        """
        if self.whole is None:
            raise ValueError("no verdict on the whole log")
        said = {(found.rule, step): found.alarms for found in self.whole for step in found.steps if found.alarms}
        ended: dict[int, list[Finding]] = {}
        result = {name: {"named": [], "confirmed": []} for name in self.adapter.alarms}
        for (rule, step), alarms in said.items():
            if step not in ended:
                ended[step] = self.judge(sum(at <= step for at in self.steps))
            confirmed = any(found.rule == rule and step in found.steps for found in ended[step])
            for name in alarms:
                result[name]["named"].append(step)
                if confirmed:
                    result[name]["confirmed"].append(step)
        return {name: {kind: sorted(set(steps)) for kind, steps in kinds.items()} for name, kinds in result.items()}


def first_line(error: BaseException) -> str:
    """An error in one line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}".rstrip(": ")


def _write(file: Any, reply: dict[str, Any]) -> None:
    file.write(json.dumps(reply) + "\n")
    file.flush()
