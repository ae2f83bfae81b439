"""Files of a study's runs: one log of JSON lines a run, or any other form, and their entries in the manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from rmetric.records import FAILURE, TERMINAL_EVENTS

if TYPE_CHECKING:
    from rmetric.twins.group import RecordedRun


class Spec(Protocol):
    """Content of one file of a study: a run, or several."""

    @property
    def experiment_id(self) -> str:
        """Name of the file without its ending."""
        ...


@dataclass(frozen=True)
class Finished:
    name: str
    sha256: str
    bytes: int
    records: int
    outcome: str
    failure_step: int | None

    @property
    def outcomes(self) -> dict[str, int]:
        """Its one outcome."""
        return {self.outcome: 1}

    @property
    def runs(self) -> int:
        return 1


def finished_log(name: str, content: bytes, records: int, outcome: str, failure_step: int | None) -> Finished:
    """Entry of a log with this content."""
    return Finished(name, hashlib.sha256(content).hexdigest(), len(content), records, outcome, failure_step)


def finished_recording(recorded: RecordedRun) -> Finished:
    """Entry of a live run whose log is whole."""
    content, outcome = recorded.log.read_bytes(), recorded.judgement.outcome
    return finished_log(recorded.name, content, records_in(content), outcome.kind, outcome.failure_step)


def records_in(content: bytes) -> int:
    """Number of METRICS records of a log; its first line is none."""
    return content.count(b'\n{"event":"METRICS"')


@dataclass(frozen=True)
class FinishedPart:
    """One finished file of several runs."""

    name: str
    sha256: str
    bytes: int
    records: int
    outcomes: dict[str, int]
    """Outcome → number of runs."""

    @property
    def runs(self) -> int:
        return sum(self.outcomes.values())


Entry = Finished | FinishedPart
"""One finished file, as the manifest lists it."""


@dataclass(frozen=True)
class LogForm:
    """Way in which runs lie in files."""

    suffix: str
    entry: Callable[..., Entry]
    """Entry of the manifest out of what was read back."""
    examined: Callable[[Any, bytes], Entry | None]
    """Entry of a file of a spec that the manifest does not list yet; ``None`` if it is not whole, or of another run."""
    files: Callable[[Sequence[Any]], Sequence[Any]] = lambda runs: runs
    """All files of a study with these runs; the same ones however much of it is done."""


def _examined(spec: Any, content: bytes) -> Finished | None:
    """A whole log has an event in every line, a terminal one in the last."""
    try:
        *lines, rest = content.split(b"\n")
        events = [orjson.loads(line) for line in lines]
        kinds = [event["event"] for event in events]
        if rest or events[0]["config"]["seed"] != spec.seed or kinds[-1] not in TERMINAL_EVENTS:
            return None
        end = events[-1]
        failed = end["event"] == FAILURE
        outcome, step = ("failed", end["step"]) if failed else (end["outcome"], None)
    except (IndexError, KeyError, TypeError, ValueError):
        return None
    return finished_log(spec.experiment_id, content, records_in(content), outcome, step)


JSON_LINES = LogForm(".jsonl", Finished, _examined)
"""A log of JSON lines for each run."""
