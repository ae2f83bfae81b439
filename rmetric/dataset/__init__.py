"""A whole study in one Parquet file: every step of every run, its truth, and what the log said beside the records.

:mod:`~rmetric.dataset.layout` has the columns, :mod:`~rmetric.dataset.write` makes the file from folders of logs
(``python -m rmetric.dataset``), :mod:`~rmetric.dataset.read` gives the runs back, :mod:`~rmetric.dataset.unpack` the
logs, and :mod:`~rmetric.dataset.card` the figures of the data card.
"""
