"""The diagnosis of a run, and how it shows itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from rmetric.diagnosis.finding import SEVERITIES, Finding, Severity
from rmetric.diagnosis.not_judged import ESSENTIAL, OUTLIERS
from rmetric.diagnosis.text import lines_of, table_of, wrapped
from rmetric.importers.run_marks import NEVER_A_NUMBER
from rmetric.log_lines import plain_text

UNREAD = 0.1
"""Share of a log that could not be used, above which what is left says nothing of the run."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Verdict on a run: its findings and states, and what could not be judged."""

    run: str
    """Its name."""
    source: str
    """Path of its log; empty for a run in memory."""
    format: str
    """Name of the log's format; ``memory`` for a run in memory, ``frame`` for a data frame."""
    records: int
    first_step: int | None
    """``None`` without a record."""
    last_step: int | None
    findings: tuple[Finding, ...]
    """The gravest first, then by step."""
    not_judged: Mapping[str, str]
    """What could not be judged, and why."""
    left_out: int = 0
    """Lines that were skipped."""
    damaged: int = 0
    """Other lines of which a part could not be used."""
    notes: tuple[str, ...] = ()
    """About the log: damage, and what was taken for what."""

    @property
    def nothing_to_judge(self) -> bool:
        """True if the log has neither loss nor gradients nor updates, or no record at all."""
        return not self.findings and (not self.records or ESSENTIAL.issubset(self.not_judged))

    @property
    def too_short(self) -> bool:
        """True if nothing was found, but the run has too few records to tell what is normal in it."""
        return not self.findings and OUTLIERS in self.not_judged

    @property
    def largely_unread(self) -> bool:
        """True if nothing was found, but more than a tenth of the log could not be used."""
        return not self.findings and self.left_out + self.damaged > UNREAD * self._lines

    @property
    def lacks_loss(self) -> bool:
        """True if nothing was found, but there was no training loss."""
        return not self.findings and "loss" in self.not_judged

    @property
    def lacks_evaluation(self) -> bool:
        """True if nothing was found, but the validation loss was never a number."""
        return not self.findings and NEVER_A_NUMBER in self.notes

    @property
    def _lines(self) -> int:
        return self.records + self.left_out

    @property
    def healthy(self) -> bool:
        """True if nothing was found in a run that could be judged."""
        unread = self.nothing_to_judge or self.largely_unread or self.lacks_loss or self.lacks_evaluation
        return not (self.findings or self.too_short or unread)

    @property
    def severity(self) -> Severity | None:
        """Severity of the gravest finding; ``None`` if there is none."""
        return max((finding.severity for finding in self.findings), key=SEVERITIES.index, default=None)

    def to_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        return {
            **vars(self),
            "healthy": self.healthy,
            "findings": [finding.to_dict() for finding in self.findings],
            "not_judged": dict(self.not_judged),
            "notes": list(self.notes),
        }

    @property
    def verdict(self) -> str:
        """``healthy``, why nothing can be said, or the findings' kinds with their first steps."""
        if self.nothing_to_judge:
            return "nothing to judge"
        if self.too_short:
            return "nothing found, but too short to tell"
        if self.largely_unread:
            is_skipped = self.left_out > UNREAD * self._lines
            unread = f"{self.left_out:,}" if is_skipped else f"values in {self.left_out + self.damaged:,}"
            return f"nothing found, but {unread} of {self._lines:,} lines could not be used"
        if self.lacks_loss:
            return "nothing found, but there is no training loss"
        if self.lacks_evaluation:
            return "nothing found, but the validation loss was never a number"
        return ", ".join(f"{finding.name} at step {finding.step:,}" for finding in self.findings) or "healthy"

    @property
    def extent(self) -> str:
        """Number of records, and first and last step."""
        if not self.records:
            return "no records"
        return f"{self.records:,} record{'s' * (self.records != 1)} (steps {self.first_step:,} to {self.last_step:,})"

    @property
    def in_brief(self) -> str:
        """Name, verdict and extent in one line."""
        return f"{plain_text(self.run)}: {self.verdict}, {self.extent}"

    def __str__(self) -> str:
        lines = [self.in_brief]
        for finding in self.findings:
            lines += ["", *lines_of(finding)]
        if self.not_judged:
            lines += ["", "Not judged:", *(f"  {name}: {why}" for name, why in self.not_judged.items())]
        if self.notes:
            lines += ["", *(wrapped(f"Note: {plain_text(note, None)}", "") for note in self.notes)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """HTML for a notebook, without scripts and outer files."""
        missing = "".join(f"<li>{escape(name)}: {escape(why)}</li>" for name, why in self.not_judged.items())
        below = f"<details><summary>Not judged</summary><ul>{missing}</ul></details>" if missing else ""
        notes = "".join(f"<p>Note: {escape(note)}</p>" for note in self.notes)
        return f"<div><p><b>{escape(self.in_brief)}</b></p>{table_of(self.findings)}{below}{notes}</div>"
