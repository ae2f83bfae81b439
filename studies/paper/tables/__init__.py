"""The paper's tables and this project's own: all that are registered, built from evaluated studies."""

from __future__ import annotations

from collections.abc import Sequence

from rmetric.progress import progress_bar
from rmetric.reporting.table import Table
from studies.calibration import comparison  # noqa: F401 - these modules register their tables
from studies.catalogue import CATALOGUE, Inputs
from studies.cluster import cost, report  # noqa: F401
from studies.paper import claims  # noqa: F401
from studies.paper.tables import detectors, headline, held_out, scenarios, weights  # noqa: F401
from studies.risk import tables  # noqa: F401


def build_tables(inputs: Inputs, numbers: Sequence[str] = ()) -> list[Table]:
    """Tables of these numbers (``3`` for 3 to 3d; none: all), in order; those for which something is missing not."""
    chosen = CATALOGUE.chosen(numbers)
    with progress_bar(chosen, desc="tables", unit="table", delay=1.0) as bar:
        found = [description.table(description.needs(inputs)) for description in bar]
    return [table for table in found if table is not None]


def sets_beside(numbers: Sequence[str] = ()) -> list[str]:
    """Sets beside a study that tables of these numbers are made of; all of them if there is no number."""
    return [description.extra_set for description in CATALOGUE.chosen(numbers) if description.extra_set]


__all__ = ["CATALOGUE", "build_tables", "sets_beside"]
