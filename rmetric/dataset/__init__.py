"""Published runs, one Parquet file a set: its columns (:mod:`~rmetric.dataset.layout`), reader, writer, and logs again.

Every step of every run, its truth, and what the log said. ``python -m studies.real_runs.publish`` makes a file from a
folder of logs.
"""
