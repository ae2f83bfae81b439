"""What is sent at all: nothing twice, and no topic more often than once a cooldown."""

from __future__ import annotations

from dataclasses import dataclass

from rmetric.diagnosis import SEVERITIES, Severity
from rmetric.watch.news import News

COOLDOWN_S = 600.0


@dataclass
class _Topic:
    sent: float
    severity: int
    withheld: int = 0


class Gate:
    """Decides about each piece of news.

    Parameters
    ----------
    cooldown_s
        Seconds for which more of the same (same run, same kind) is withheld and counted. What is graver than what was
        sent passes.
    least
        Mildest severity that is sent. The end of a silence that was sent passes, mild and at once.
    """

    def __init__(self, cooldown_s: float = COOLDOWN_S, least: Severity = "warning") -> None:
        self._cooldown_s, self._least = cooldown_s, SEVERITIES.index(least)
        self._topics: dict[tuple[str, str, str], _Topic] = {}
        self._silent: set[tuple[str, str]] = set()
        """Logs and runs of which the latest that was sent is that they are silent."""
        self.withheld = 0
        """Pieces of news that were not sent for a cooldown."""

    def admit(self, news: News, now: float) -> str | None:
        """Text to send, with what was withheld before; ``None``: send nothing."""
        severity = SEVERITIES.index(news.severity)
        ends_a_silence = news.kind == "goes on" and (news.log, news.run) in self._silent
        if severity < self._least and not ends_a_silence:
            return None
        known = self._topics.get(news.topic)
        is_due = known is None or now - known.sent >= self._cooldown_s or severity > known.severity
        if known is not None and not is_due and not ends_a_silence:
            known.withheld += 1
            self.withheld += 1
            return None
        self._topics[news.topic] = _Topic(now, severity)
        if news.kind == "silent":
            self._silent.add((news.log, news.run))
        elif ends_a_silence:
            self._silent.remove((news.log, news.run))
        more = known.withheld if known is not None else 0
        return f"{news.text} ({more} more like it since the last message)" if more else news.text
