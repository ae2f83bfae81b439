"""Watch logs that grow: say what begins to go wrong in a run, and tell somebody.

From the file to the message: :mod:`~rmetric.watch.places` finds the logs of a folder, :mod:`~rmetric.watch.watched_log`
sees that one has grown or was replaced, :mod:`~rmetric.watch.sources` reads what is new,
:mod:`~rmetric.diagnosis.new_records` leaves out what was known, :mod:`~rmetric.watch.watched_run` judges it and says
what is news, :mod:`~rmetric.watch.watcher` is the loop, and :mod:`~rmetric.watch.notify` sends the news.
"""

from rmetric.watch.news import News
from rmetric.watch.watcher import Watcher

__all__ = ["News", "Watcher"]
