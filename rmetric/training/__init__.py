"""Real training with torch: watch it, break it on purpose, explain it.

Names are resolved on first use: a part of this package that needs a library does not make the others need it.
"""

from __future__ import annotations

from rmetric.lazy import names_of

_HOME_OF = {
    "Alert": "rmetric.training.monitor",
    "LiveRun": "rmetric.training.live_run",
    "LiveRunConfig": "rmetric.training.live_run",
    "TrainingMonitor": "rmetric.training.monitor",
}

__all__ = list(_HOME_OF)

__getattr__ = names_of(__name__, _HOME_OF)
