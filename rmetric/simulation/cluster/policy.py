"""How a job meets its failures: checkpoints alone, with warnings, with repair."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from rmetric.errors import UserError
from rmetric.simulation.cluster.job import Job
from rmetric.simulation.cluster.warnings import Measured, Warnings

CHECKPOINTS, WITH_WARNINGS, WITH_REPAIR, BOUND = "checkpoints", "+ warnings", "+ repair", "bound"


@dataclass(frozen=True, kw_only=True)
class Repair:
    """A corrupted step is computed once more before its update is kept."""

    share: float = 0.99
    """Of the harmful corruptions that are repaired: an assumption unless a campaign has measured it."""
    overhead_pct: float = 1.0
    """Of the compute that the watch costs.

    **Source:** Altenbernd, Wiesner, Kao 2026, arXiv 2604.00726, unless a campaign has measured it.
    """
    share_measured: bool = False
    overhead_measured: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.share <= 1.0:
            raise UserError(f"the repaired share must be from 0 to 1, not {self.share}")
        if not 0.0 <= self.overhead_pct < math.inf:
            raise UserError(f"the overhead of repair must be at least 0 %, not {self.overhead_pct}")

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> Self:
        """From a campaign's ``summary.json``; what it does not say stays assumed.

        >>> Repair.of({"repaired_share": 0.995, "repair_overhead_pct": -0.02})
        Repair(share=0.995, overhead_pct=0.0, share_measured=True, overhead_measured=True)
        """
        share, overhead = (_number(summary.get(key)) for key in ("repaired_share", "repair_overhead_pct"))
        found: dict[str, Any] = {}
        if share is not None:
            found |= {"share": share, "share_measured": True}
        if overhead is not None:  # a cost below the noise of a clock is none
            found |= {"overhead_pct": max(overhead, 0.0), "overhead_measured": True}
        return cls(**found)


def _number(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Checkpoints at the job's interval, and what comes on top of them."""

    name: str
    warnings: Warnings | None = None
    repair: Repair | None = None
    undefined: str = ""
    """Why nothing can be said about this policy; empty if it can."""


def policies(job: Job, found: Measured, repair: Repair) -> list[Policy]:
    """The three, and a bound: all failures warned in time, all corruption repaired, at no cost."""
    why = found.reason
    perfect = Repair(share=1.0, overhead_pct=0.0)
    return [
        Policy(name=CHECKPOINTS),
        Policy(name=WITH_WARNINGS, warnings=found.warnings, undefined=why),
        Policy(name=WITH_REPAIR, warnings=found.warnings, repair=repair, undefined=why),
        Policy(name=BOUND, warnings=Warnings.perfect(job), repair=perfect),
    ]
