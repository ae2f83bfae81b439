"""Alert episodes: alerts that are fewer than 50 quiet steps apart are one event."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

REARM_STEPS = 50


def episodes(step: NDArray[np.int64], alerts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Indices of the records at which an alert episode of one run begins.

    Parameters
    ----------
    step
        Steps of the records, shape (n,), increasing.
    alerts
        Whether the detector alerts at each record, shape (n,).

    >>> episodes(np.array([10, 20, 30, 80, 90, 100]), np.array([True, True, False, False, True, False])).tolist()
    [0, 4]
    """
    begins = []
    previous = -1
    for index in np.flatnonzero(alerts).tolist():
        if previous < 0 or step[index - 1] - step[previous] >= REARM_STEPS:
            begins.append(index)
        previous = index
    return np.array(begins, dtype=np.int64)


class Rearm:
    """Merges alerts into episodes as the strict protocol does: an episode ends after 50 quiet steps."""

    def __init__(self) -> None:
        self._last_alert: int | None = None
        self._record_before: int | None = None

    def begins(self, step: int, alert: bool) -> bool:
        """Whether an episode begins at the next record."""
        before, self._record_before = self._record_before, step
        if not alert:
            return False
        last, self._last_alert = self._last_alert, step
        return last is None or before is None or before - last >= REARM_STEPS
