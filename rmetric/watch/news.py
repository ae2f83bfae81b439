"""News of a watched run: findings and changes of its state, for a command, a webhook or a chat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rmetric.diagnosis import Finding, Severity

Kind = Literal["finding", "silent", "goes on", "ended"]


@dataclass(frozen=True, kw_only=True)
class News:
    """One message."""

    kind: Kind
    run: str
    log: str
    """Path of its log."""
    place: str = ""
    """Path of the log in which it began: that of its next checkpoint is another."""
    step: int | None
    """Latest step of the run, or first step of the finding."""
    sentence: str
    finding: Finding | None = None

    @property
    def severity(self) -> Severity:
        """Severity of the finding; a silent run is a warning, all else a note."""
        if self.finding is not None:
            return self.finding.severity
        return "warning" if self.kind == "silent" else "note"

    @property
    def name(self) -> str:
        """Kind of finding, or ``SILENT``, ``GOES_ON``, ``ENDED``."""
        return self.finding.name if self.finding is not None else self.kind.upper().replace(" ", "_")

    @property
    def topic(self) -> tuple[str, str, str]:
        """News of one topic are of one kind in one run."""
        return self.place, self.run, self.name

    @property
    def text(self) -> str:
        """One line for people."""
        at = "" if self.step is None else f" at step {self.step:,}"
        advice = f". {self.finding.advice}" if self.finding is not None else ""
        return f"{self.run}: {self.severity}: {self.name}{at}: {self.sentence}{advice}"

    def to_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        finding = {} if self.finding is None else self.finding.to_dict()
        about = {"event": self.kind, "text": self.text, "run": self.run, "log": self.log}
        return finding | about | {"name": self.name, "severity": self.severity, "step": self.step,
                                  "sentence": self.sentence}  # fmt: skip
