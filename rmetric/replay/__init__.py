"""Replay a log: recompute its signals, R and every alert, in bounded memory, and say what each number rests on.

One concept a file, in the order in which a log goes through them: :mod:`~rmetric.replay.events` (only what a replay
needs of each event, checked), :mod:`~rmetric.replay.events` (what the log says of the run), then chunk by chunk
:mod:`~rmetric.replay.signals` (λ, σ² and ΔL recovered), :mod:`~rmetric.replay.result`,
:mod:`~rmetric.replay.result` (our numbers against the log's), :mod:`~rmetric.replay.result` (what a plot needs), and
at the end :mod:`~rmetric.replay.result`. :mod:`~rmetric.replay.replayer` is the flow, :mod:`~rmetric.replay.settings`
say which R.
"""

from rmetric.replay.events import Intake, Story, plain_text
from rmetric.replay.replayer import CHUNK_RECORDS, Columns, Replayer, replay_log
from rmetric.replay.result import AGREEMENT, Agreement, AlertEpisodes, FirstAlerts, Replay, Series, Trace
from rmetric.replay.settings import LOGGED, PRESET_NAMES, ReplaySettings, parse_weights
from rmetric.replay.signals import SIGNALS, Recovered, SignalRecovery

__all__ = [
    "AGREEMENT",
    "CHUNK_RECORDS",
    "LOGGED",
    "PRESET_NAMES",
    "SIGNALS",
    "Agreement",
    "AlertEpisodes",
    "Columns",
    "FirstAlerts",
    "Intake",
    "Recovered",
    "Replay",
    "ReplaySettings",
    "Replayer",
    "Series",
    "SignalRecovery",
    "Story",
    "Trace",
    "parse_weights",
    "plain_text",
    "replay_log",
]
