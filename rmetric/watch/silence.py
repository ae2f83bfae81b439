"""A run that stops growing for far longer than it usually takes between two records."""

from __future__ import annotations

from collections import deque
from statistics import median

LEAST_INTERVALS = 3
KEPT_INTERVALS = 30
FACTOR = 10.0
"""Usual intervals after which a run is silent."""
LEAST_S = 60.0
"""Shortest silence."""


class Silence:
    """Learns the usual interval of one run and says once when it is exceeded by far.

    Parameters
    ----------
    after_s
        Seconds of silence; ``None``: ten usual intervals, a minute at least, as soon as three intervals are known.

    >>> silence = Silence()
    >>> [silence.grew(now) for now in (0.0, 10.0, 20.0, 30.0)], silence.begins(100.0), silence.begins(131.0)
    ([False, False, False, False], False, True)
    >>> silence.begins(140.0), silence.grew(150.0)
    (False, True)
    """

    def __init__(self, after_s: float | None = None) -> None:
        self._after_s = after_s
        self._intervals: deque[float] = deque(maxlen=KEPT_INTERVALS)
        self._latest: float | None = None
        self._silent = False

    def grew(self, now: float) -> bool:
        """Note new records; true if that ends a silence."""
        was_silent, self._silent = self._silent, False
        if self._latest is not None and now > self._latest and not was_silent:  # one look may bring many portions
            self._intervals.append(now - self._latest)
        self._latest = now
        return was_silent

    def begins(self, now: float) -> bool:
        """Return whether the run is silent from now on; true once a silence."""
        limit = self.limit_s
        if self._silent or self._latest is None or limit is None or now - self._latest <= limit:
            return False
        self._silent = True
        return True

    @property
    def usual_s(self) -> float | None:
        """Median interval; ``None`` as long as too few are known."""
        return median(self._intervals) if len(self._intervals) >= LEAST_INTERVALS else None

    @property
    def limit_s(self) -> float | None:
        """Seconds after which the run is silent; ``None``: not known."""
        if self._after_s is not None:
            return self._after_s
        return None if self.usual_s is None else max(FACTOR * self.usual_s, LEAST_S)

    def lasts_s(self, now: float) -> float:
        """Seconds since the latest records."""
        return 0.0 if self._latest is None else now - self._latest
