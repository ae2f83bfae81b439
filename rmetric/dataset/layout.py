"""Columns of a data set: one set of runs, one row a record, the columns of the run repeated in each of its rows.

Repetition costs next to nothing in a column store, and whoever opens the file with pandas, Polars or DuckDB has every
label at every step. Two columns stand in the first row of a run alone: ``config`` and ``events``, as JSON text.

A run whose log names a ``twin`` shares all records before the onset with it. They are stored once, with the twin;
``shared_records`` says how many of the twin's first records come before the run's own first row.
"""

from __future__ import annotations

import pyarrow as pa

from rmetric.measurements import MEASUREMENTS

TRANSFER, FRESH, TRANSFER_2, FRESH_2, TRANSFER_3, TRANSFER_4, TRANSFER_5 = EXTRA_SETS = (
    "transfer", "fresh", "transfer_2", "fresh_2", "transfer_3", "transfer_4", "transfer_5",
)  # fmt: skip
"""Sets of runs that are scored with what was fitted to a study: what is kept for transfer (models, optimizers, faults
not in the study); the study once more with another seed; both of these with further seeds. Each lies in a file of its
own beside the study's, :func:`rmetric.dataset.sources.companion`."""

FORMAT_KEY, FORMAT = b"rmetric_data_set", b"4"
"""Marks the file, in the metadata of its schema; another number is another layout."""
EXACT_KEY = b"rmetric_exact"
"""Metadata with the values that their column does not hold to the last digit: :mod:`rmetric.dataset.precision`."""

RUN_COLUMNS = {
    "set": pa.string(),
    "run": pa.string(),
    "model": pa.string(),
    "optimizer": pa.string(),
    "seed": pa.int64(),
    "repetition": pa.int64(),
    "fault": pa.string(),
    "severity": pa.string(),
    "parameters": pa.string(),
    "disturbance": pa.string(),
    "onset": pa.int64(),
    "outcome": pa.string(),
    "failure_step": pa.int64(),
    "reason": pa.string(),
    "steps": pa.int64(),
    "twin": pa.string(),
    "shared_records": pa.int64(),
}
"""Columns that are the same in every row of a run; ``set`` is the name of the file without its ending, ``parameters``
and ``disturbance`` are JSON texts."""
ONCE_COLUMNS = ("config", "events")
"""JSON texts in the first row of a run, null in the others. ``events`` is a list of [number of the record that the
event stands before, event], of all events but METRICS."""
STEP = "step"

SCHEMA = pa.schema(
    [
        *(pa.field(name, kind) for name, kind in RUN_COLUMNS.items()),
        pa.field(STEP, pa.int64(), nullable=False),
        *(pa.field(name, pa.float32()) for name in MEASUREMENTS),
        *(pa.field(name, pa.string()) for name in ONCE_COLUMNS),
    ],
    metadata={FORMAT_KEY: FORMAT},
)
"""A measurement that single precision cannot tell is a column of doubles."""
