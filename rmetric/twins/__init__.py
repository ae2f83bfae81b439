"""Record live runs beside their fault-free twin: one healthy run, forked at each onset, judged against itself."""

from rmetric.twins.group import Branch, RecordedRun, record_group
from rmetric.twins.recording import judge_against, log_config, record_fork
from rmetric.twins.snapshots import Schedule, Snapshot, TruthRecord
from rmetric.twins.watching import LOGGED_DETECTORS, close_hardware_watch, monitor_of

__all__ = [
    "LOGGED_DETECTORS",
    "Branch",
    "RecordedRun",
    "Schedule",
    "Snapshot",
    "TruthRecord",
    "close_hardware_watch",
    "judge_against",
    "log_config",
    "monitor_of",
    "record_fork",
    "record_group",
]
