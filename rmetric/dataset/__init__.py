"""A whole study in one Parquet file: every step of every run, its truth, and what the log said beside the records.

:mod:`~rmetric.dataset.layout` has the columns, :mod:`~studies.real_runs.publish` makes the file from folders of logs
(``python -m studies.real_runs.publish``), :mod:`~rmetric.dataset.read` gives the runs back, :mod:`~rmetric.dataset.unpack` the
logs, and :mod:`~studies.real_runs.card` the figures of the data card.
"""
