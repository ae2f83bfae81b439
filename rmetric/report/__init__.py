"""A report on one or more runs: one HTML page that opens without a network.

Tables and figures of a study come from :mod:`rmetric.reporting`.

:mod:`~rmetric.report.curves` thins the curves of a run, :mod:`~rmetric.report.reported` puts its diagnosis beside them,
:mod:`~rmetric.report.tables` says all of it in words, :mod:`~rmetric.report.page` makes the page of them and of what
lies in ``assets``: template, style, script, and a charting library with its licence.
"""

from rmetric.report.curves import buckets_for
from rmetric.report.page import page_of, write_report
from rmetric.report.reported import ReportedRun

__all__ = ["ReportedRun", "buckets_for", "page_of", "write_report"]
