"""Silent data corruption: campaigns of single bit flips, what comes of them, who sees them, and where they were."""

from __future__ import annotations

from rmetric.lazy import names_of

_HOME_OF = {
    "Campaign": "rmetric.training.sdc.campaign",
    "Injection": "rmetric.training.sdc.plan",
    "Settings": "rmetric.training.sdc.plan",
    "injecting": "rmetric.training.sdc.inject",
    "run_campaign": "rmetric.training.sdc.runner",
}

__all__ = list(_HOME_OF)

__getattr__ = names_of(__name__, _HOME_OF)
