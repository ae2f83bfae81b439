"""Who alerted when: first alerts, and the episodes of an alarm."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rmetric.evaluation.protocols import REARM_STEPS

MAX_EPISODES_KEPT = 4096
"""Begins of episodes that are kept for a fault that the log tells of later."""


class FirstAlerts(dict[str, int]):
    """Detector → step of its first alert, of those that alerted."""

    def extend(self, detector: str, steps: NDArray[np.int64], above: NDArray[np.bool_]) -> None:
        """Note whether its score was above the threshold in the next records, each of shape (n,)."""
        if detector not in self and above.any():
            self[detector] = int(steps[above.argmax()])


class AlertEpisodes:
    """Merges alerts into episodes as the strict protocol does: after 50 quiet steps the next alert begins a new one."""

    def __init__(self) -> None:
        self.count = 0
        """Episodes so far."""
        self.begins: list[int] = []
        """Their first steps, of the first 4,096."""
        self.warning: int | None = None
        """Begin of the first episode at or after the fault; ``None`` as long as there is neither."""
        self._record_before = self._last_alert = -1

    def extend(self, steps: NDArray[np.int64], above: NDArray[np.bool_], onset: int | None = None) -> None:
        """The next records, each of shape (n,), n at least 1; ``onset``: step of the fault, if it is known by now."""
        begins = self._begins_in(steps, above)
        self._record_before = int(steps[-1])
        self.count += len(begins)
        if self.warning is None and onset is not None:
            self.warning = next((step for step in (*self.begins, *begins) if step >= onset), None)
        self.begins += begins[: MAX_EPISODES_KEPT - len(self.begins)]

    def _begins_in(self, steps: NDArray[np.int64], above: NDArray[np.bool_]) -> list[int]:
        at = np.flatnonzero(above)
        if not len(at):
            return []
        alert_before = np.append(self._last_alert, steps[at[:-1]])
        record_before = np.append(self._record_before, steps[:-1])[at]
        # The quiet records between two alerts must cover the steps; the first alert of all begins an episode.
        rearmed = (record_before - alert_before >= REARM_STEPS) | (alert_before < 0)
        self._last_alert = int(steps[at[-1]])
        return steps[at[rearmed]].tolist()
