"""Published runs in one Parquet file: its columns (:mod:`~rmetric.dataset.layout`), a reader, and the way back to logs.

Every step of every run, its truth, and what the log said. ``python -m studies.real_runs.publish`` makes the file from
folders of logs.
"""
