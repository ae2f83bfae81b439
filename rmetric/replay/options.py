"""What of a log is replayed, and with which R-Metric: one value from the command line to each log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmetric.importers import AUTO
from rmetric.replay.settings import ReplaySettings


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """Choices of a replay, as :func:`~rmetric.replay.one_log.replay_log` takes them."""

    settings: ReplaySettings = field(default_factory=ReplaySettings)
    """Which R-Metric."""
    log_format: str = AUTO
    """Name of the log's format; ``auto`` judges by its content."""
    mapping: Mapping[str, str] = field(default_factory=dict)
    """Our name → the log's name of a column."""
    run: str | None = None
    """Name of the run, where a log holds several."""


AS_IT_IS = ReplayOptions()
"""The paper's R-Metric, the format judged by the content, nothing mapped."""
