"""A run as a data set holds it: labels, records, and all that its log said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rmetric.log_reader import Chunk, assemble
from rmetric.records import Run


@dataclass(frozen=True)
class StoredRun:
    """One run of a data set."""

    labels: dict[str, Any]
    """Values of :data:`~rmetric.dataset.layout.RUN_COLUMNS`, by name; ``None`` where the file has none. ``set`` and
    ``shared_records`` are known when it is written."""
    chunk: Chunk
    """Its records, those it shares with its twin included, and all events but METRICS."""

    @property
    def name(self) -> str:
        """Name of the log."""
        return str(self.labels["run"])

    def run(self) -> Run:
        """The run as it is read from its log, without the results of its own detectors (``verdicts``, ``alerts``)."""
        return assemble(self.name, [self.chunk])
