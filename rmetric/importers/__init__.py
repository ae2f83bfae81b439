"""Other people's logs as records: one file a format, one contract, found by name in :data:`IMPORTERS`.

No importer runs anything that a log holds: text and JSON only, no pickle.
"""

from rmetric.importers.base import (
    ALIASES,
    IMPORTERS,
    FieldMap,
    Importer,
    flattened,
    parse_mapping,
    register_importer,
)
from rmetric.importers.console import read_console
from rmetric.importers.csv_table import read_csv
from rmetric.importers.find import collect_logs
from rmetric.importers.format import AUTO, detect_format
from rmetric.importers.jsonl import read_event_log, read_jsonl
from rmetric.importers.lines import LoneLines
from rmetric.importers.read import (
    Caveats,
    Damage,
    LoggedPortions,
    LoggedRun,
    portions_of,
    portions_of_rows,
    read_run,
    read_runs,
    runs_named_in,
    runs_of,
)
from rmetric.importers.rows import Row, Rows
from rmetric.importers.run_marks import one_run, without_notes
from rmetric.importers.trainer_state import read_trainer_state

__all__ = [
    "ALIASES",
    "AUTO",
    "IMPORTERS",
    "Caveats",
    "Damage",
    "FieldMap",
    "Importer",
    "LoggedPortions",
    "LoggedRun",
    "LoneLines",
    "Row",
    "Rows",
    "collect_logs",
    "detect_format",
    "flattened",
    "one_run",
    "parse_mapping",
    "portions_of",
    "portions_of_rows",
    "read_console",
    "read_csv",
    "read_event_log",
    "read_jsonl",
    "read_run",
    "read_runs",
    "read_trainer_state",
    "register_importer",
    "runs_named_in",
    "runs_of",
    "without_notes",
]
