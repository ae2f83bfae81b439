"""A finding about a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from rmetric.plain_numbers import finite_numbers

Severity = Literal["note", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""The mildest first. ``error``: the run is broken as it stands; ``warning``: somebody should look; ``note``: it has
passed."""

FAILED = "FAILED"
"""Kind of the finding that repeats what the log says: the run failed."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong with a run."""

    name: str
    """Kind, one of :data:`rmetric.advice.ADVICE`."""
    severity: Severity
    step: int
    """First step of it."""
    until: int
    """Last step of it."""
    sentence: str
    """Evidence in numbers."""
    numbers: Mapping[str, float]
    """The same by name."""
    sure: float
    """1 minus the share of healthy runs of this length that show as much, in [0, 1]; NaN: not calibrated."""
    causes: tuple[str, ...]
    """Likely causes, the likeliest first."""
    advice: str
    """What to do."""

    def to_dict(self) -> dict[str, Any]:
        """All of it for JSON; a number that is not finite is left out."""
        return {
            **vars(self),
            "numbers": finite_numbers(self.numbers),
            "causes": list(self.causes),
            "sure": _known(self.sure),
        }

    def __eq__(self, other: object) -> bool:
        """Whether two findings are equal; NaN equals NaN."""
        return self._comparable() == other._comparable() if isinstance(other, Finding) else NotImplemented

    def _comparable(self) -> dict[str, Any]:
        numbers = {name: _known(value) for name, value in self.numbers.items()}
        return {**vars(self), "numbers": numbers, "sure": _known(self.sure)}


def _known(number: float) -> float | None:
    return None if math.isnan(number) else number
