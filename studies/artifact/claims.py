"""Claims of the artefact: what a command must print to bear them out."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("claims.toml")
BADGES = ("available", "functional", "reusable", "reproduced")
"""Of the ACM's Artifact Review and Badging, version 1.1, in the order in which a reviewer goes."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One sentence about the artefact, and how the output of a command shows it."""

    says: str
    find: str
    """Regular expression that the output must match; with ``expected``, its group is the number."""
    expected: float | None = None
    tolerance: float = 0.0
    """Largest distance to ``expected`` that is still borne out: other processors and versions of the libraries."""

    def found(self, output: str) -> str | None:
        """Number or text of this claim in the output of its command; ``None`` if it is not there.

        >>> Claim(says="", find=r"F1 ([0-9.]+)", expected=0.5).found("F1 0.52 on 720 runs")
        '0.52'
        """
        match = re.search(self.find, output)
        return match and match[0 if self.expected is None else 1].replace(",", "")

    def holds(self, output: str) -> bool:
        """Whether an output bears the claim out.

        >>> claim = Claim(says="", find=r"F1 ([0-9.]+)", expected=0.5, tolerance=0.01)
        >>> [claim.holds(output) for output in ("F1 0.51", "F1 0.52", "no run")]
        [True, False, False]
        """
        found = self.found(output)
        if found is None or self.expected is None:
            return found is not None
        return abs(float(found) - self.expected) <= self.tolerance + 1e-9


@dataclass(frozen=True, kw_only=True)
class Check:
    """A command and the claims that it checks."""

    badge: str
    command: str
    """For bash, typed in the root of the repository."""
    minutes: float
    """On two cores of a shared machine."""
    claim: tuple[Claim, ...]

    def __post_init__(self) -> None:
        if self.badge not in BADGES:
            raise ValueError(f"no badge is named {self.badge!r}; choose among {', '.join(BADGES)}")


def read_checks() -> list[Check]:
    """The checks of :data:`FILE`, in its order."""
    listed = tomllib.loads(FILE.read_text(encoding="utf-8"))["check"]
    return [Check(**{**check, "claim": tuple(Claim(**claim) for claim in check["claim"])}) for check in listed]
