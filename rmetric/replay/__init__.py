"""Replay a log: recompute its signals, R and every alert, in bounded memory, and say what each number rests on.

In the order in which a log goes through them: :mod:`~rmetric.replay.events` (events checked and reduced, and what they
say of the run), then chunk by chunk :mod:`~rmetric.replay.signals` (λ, σ² and ΔL recovered) and
:mod:`~rmetric.replay.result` (alerts, our numbers against the log's) and :mod:`~rmetric.replay.trace` (curves for a
plot). :mod:`~rmetric.replay.replayer` is the flow, :mod:`~rmetric.replay.settings` say which R and which part of a log;
:mod:`~rmetric.replay.one_log` replays a log from its file, :mod:`~rmetric.replay.batch` many, and
:mod:`~rmetric.replay.report`, :mod:`~rmetric.replay.plot` and :mod:`~rmetric.replay.overview` (one table over all logs)
write what was found.
"""

from rmetric.log_lines import plain_text
from rmetric.replay.one_log import replay_log
from rmetric.replay.replayer import Columns, Replayer
from rmetric.replay.result import AlertEpisodes, LogAgreement, Replay
from rmetric.replay.settings import PRESET_NAMES, ReplayOptions, ReplaySettings, parse_weights
from rmetric.replay.signals import SIGNALS
from rmetric.replay.trace import Marks, PlotCurves, Series

__all__ = [
    "PRESET_NAMES",
    "SIGNALS",
    "AlertEpisodes",
    "Columns",
    "LogAgreement",
    "Marks",
    "PlotCurves",
    "Replay",
    "ReplayOptions",
    "ReplaySettings",
    "Replayer",
    "Series",
    "parse_weights",
    "plain_text",
    "replay_log",
]
