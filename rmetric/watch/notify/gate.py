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
    waiting: News | None = None
    """The latest that was withheld, as long as it holds."""


class Gate:
    """Decides about each piece of news.

    Parameters
    ----------
    cooldown_s
        Seconds for which more of the same (same run, same kind) is withheld and counted. What is graver than what was
        sent passes. The latest is sent after all when they are over, if it still holds: see :meth:`due`.
    least
        Mildest severity that is sent. The end of a silence that was sent passes, mild and at once.
    """

    def __init__(self, cooldown_s: float = COOLDOWN_S, least: Severity = "warning") -> None:
        self._cooldown_s, self._least = cooldown_s, SEVERITIES.index(least)
        self._topics: dict[tuple[str, str, str], _Topic] = {}
        self._silent: set[tuple[str, str]] = set()
        """Places and runs of which the latest that was sent is that they are silent."""
        self.withheld = 0
        """Pieces of news that were not sent for a cooldown."""

    def admit(self, news: News, now: float) -> str | None:
        """Text to send, with what was withheld before; ``None``: send nothing."""
        severity, run = SEVERITIES.index(news.severity), (news.place, news.run)
        ends_a_silence = news.kind == "goes on" and run in self._silent
        if news.kind in ("goes on", "ended") and (silence := self._topics.get((*run, "SILENT"))) is not None:
            silence.waiting = None
        if severity < self._least and not ends_a_silence:
            return None
        known = self._topics.get(news.topic)
        is_due = known is None or now - known.sent >= self._cooldown_s or severity > known.severity
        if known is not None and not is_due and not ends_a_silence:
            known.withheld += 1
            known.waiting = None if news.kind == "goes on" else news
            self.withheld += 1
            return None
        return self._sent(news, now)

    def due(self, now: float) -> list[tuple[News, str]]:
        """What was withheld for a cooldown that is over, and still holds, each with the text to send."""
        over = [topic for topic in self._topics.values() if now - topic.sent >= self._cooldown_s]
        waiting = [(topic, topic.waiting) for topic in over if topic.waiting is not None]
        for topic, _ in waiting:
            topic.withheld -= 1
        self.withheld -= len(waiting)
        return [(news, self._sent(news, now)) for _, news in waiting]

    def _sent(self, news: News, now: float) -> str:
        """Text of news that is sent now, and what is known of its topic and its run from then on."""
        known = self._topics.get(news.topic)
        self._topics[news.topic] = _Topic(now, SEVERITIES.index(news.severity))
        if news.kind == "silent":
            self._silent.add((news.place, news.run))
        elif news.kind == "goes on":
            self._silent.discard((news.place, news.run))
        more = known.withheld if known is not None else 0
        return f"{news.text} ({more} more like it since the last message)" if more else news.text
