"""All processes take part in a collective, or none does."""

from __future__ import annotations

import itertools
import logging
from contextlib import suppress
from datetime import timedelta

import torch.distributed as dist

LOGGER = logging.getLogger("rmetric")
PATIENCE_S = 30.0
"""Longest wait, once, for the other processes to come to the same place."""
_SERIAL = itertools.count()
"""Number of the next agreement; the same in every process that makes the same ones."""


class Agreement:
    """Whether every process of a group wants to take part; decided once, and the same for all.

    A collective that one process leaves out hangs all the others, and a monitor that only the first process has is an
    easy mistake. So this is settled through the key-value store of the process group, which no device waits for: who
    comes last says yes, whoever has waited too long says no, and what was said first holds.

    Parameters
    ----------
    group
        The processes.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._size = group.size()
        self._key = f"rmetric/spread/{group.group_name}/{next(_SERIAL)}"

    def settle(self) -> bool:
        """Tell that this process is ready, and learn whether all are. Waits at most :data:`PATIENCE_S`."""
        store = dist.distributed_c10d._get_default_store()
        try:
            if store.add(f"{self._key}/ready", 1) == self._size:
                return self._said(store, "yes")
            with suppress(RuntimeError):  # time is up
                store.wait([f"{self._key}/all"], timedelta(seconds=PATIENCE_S))
            return self._said(store, "no")
        except RuntimeError:  # the store has gone with the process that kept it
            return False

    def _said(self, store: dist.Store, answer: str) -> bool:
        """The answer that holds: this one, unless there is one already."""
        agreed = store.compare_set(f"{self._key}/all", "", answer) == b"yes"
        if not agreed:
            LOGGER.warning(
                "σ² over workers is off: not every process has a monitor and calls its step; "
                "create TrainingMonitor in all of them (only the first one writes the log)"
            )
        return agreed
