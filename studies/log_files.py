"""Files of a study's runs: one log of JSON lines a run, or any other form, and their entries in the manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

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


class Entry(Protocol):
    """One finished file, as the manifest lists it; a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def records(self) -> int: ...
    @property
    def outcomes(self) -> dict[str, int]:
        """Outcome → number of runs."""
        ...

    @property
    def runs(self) -> int: ...


class LogForm(Protocol):
    """Way in which runs lie in files."""

    suffix: str

    def files(self, runs: Sequence[Any]) -> Sequence[Any]:
        """All files of a study with these runs; the same ones however much of it is done."""
        ...

    def entry(self, **listed: Any) -> Entry:
        """Entry of the manifest as it was read back."""
        ...

    def examined(self, spec: Any, content: bytes) -> Entry | None:
        """Entry of a file that the manifest does not list yet; ``None`` if it is not whole, or of another run."""
        ...


@dataclass(frozen=True)
class Finished:
    """One finished log."""

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
        """Number of runs."""
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


class JsonLines:
    """A log of JSON lines for each run."""

    suffix = ".jsonl"

    def files(self, runs: Sequence[Any]) -> Sequence[Any]:
        """The runs themselves."""
        return runs

    def entry(self, **listed: Any) -> Finished:
        """See :class:`LogForm`."""
        return Finished(**listed)

    def examined(self, spec: Any, content: bytes) -> Finished | None:
        """See :class:`LogForm`; a whole log has an event in every line, a terminal one in the last."""
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


JSON_LINES = JsonLines()
