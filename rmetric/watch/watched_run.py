"""One run that is watched: its records judged as they come, and what is news about it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from statistics import median

from rmetric.diagnosis import SEVERITIES, Diagnosis, Examination, Finding
from rmetric.diagnosis.new_records import NewRecords
from rmetric.importers import Caveats
from rmetric.importers.run_marks import NEVER_A_NUMBER, SELDOM_A_NUMBER
from rmetric.replay import plain_text
from rmetric.watch.news import Kind, News
from rmetric.watch.sources import Portion

GROWTH = 1.02
"""Factor by which a run has grown when its states are judged again, if no alert calls for it before."""
LEAST_INTERVALS = 3
KEPT_INTERVALS = 30
SILENT_AFTER = 10.0
"""Usual intervals after which a run is silent."""
LEAST_SILENCE_S = 60.0
"""Shortest silence."""


class Silence:
    """Learns the usual interval of one run and says once when it is exceeded by far.

    Parameters
    ----------
    after_s
        Seconds of silence; ``None``: ten usual intervals, a minute at least, as soon as three intervals are known.

    Examples
    --------
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
        return None if self.usual_s is None else max(SILENT_AFTER * self.usual_s, LEAST_SILENCE_S)

    def lasts_s(self, now: float) -> float:
        """Seconds since the latest records."""
        return 0.0 if self._latest is None else now - self._latest


class WatchedRun:
    """Takes portions of a log and says what is news.

    Parameters
    ----------
    run, log
        Its name and the path of its log.
    silent_after_s
        As in :class:`Silence`.
    """

    def __init__(self, run: str, log: str, silent_after_s: float | None = None) -> None:
        self.name, self._log = plain_text(run), plain_text(log)
        self._place = self._log
        self._examination = Examination()
        self._records = NewRecords()
        self._silence = Silence(silent_after_s)
        self._told: dict[str, tuple[int, float]] = {}
        """Kind of finding → the gravest severity and the most events of it that were told."""
        self._count, self._judged_at = 0, 0
        self._ended = False
        self._format = ""
        self._caveats = Caveats([], 0, 0)
        self.damage = ""
        """The first line of which something could not be used, in words; empty if there is none."""

    @property
    def last_step(self) -> int | None:
        return self._records.last_step

    def move_to(self, log: str) -> None:
        """Go on in another file."""
        self._log = plain_text(log)

    def continues_in(self, portion: Portion) -> bool:
        """Whether records of a file that was replaced are this run's, once more or later ones."""
        return not self._records.are_of_another_run(portion.observations)

    def begins_with(self, portion: Portion) -> bool:
        """Whether records of a file that was cut are the first of this run once more, whatever follows them."""
        return self._records.begin_with(portion.observations)

    def saw(self, finding: Finding, portion: Portion) -> bool:
        """Whether a finding in a portion is one of records that are this run's once more."""
        return finding.until <= self._records.same_until(portion.observations)

    def is_read_otherwise(self, portion: Portion) -> bool:
        """Whether NaN in records of this run was no evaluation before, and is one that broke now, or the reverse."""
        return self._records.last_step is not None and _has_gaps(self._caveats) != _has_gaps(portion.caveats)

    def read_otherwise(self) -> WatchedRun:
        """The same run without its records, which are understood in another way by now; what was told is known."""
        run = self.from_its_start()
        run._told = self._told
        return run

    def from_its_start(self) -> WatchedRun:
        """The same run without its records, for a log that was cut to go on from a checkpoint."""
        run = WatchedRun(self.name, self._log)
        run._place, run._silence, run.damage = self._place, self._silence, self.damage
        return run

    @property
    def diagnosis(self) -> Diagnosis:
        """What is known of the run by now."""
        notes, left_out, damaged, _ = self._caveats
        return self._examination.diagnosis(
            self.name, source=self._log, format=self._format, left_out=left_out, damaged=damaged, notes=notes
        )

    def extend(self, portion: Portion, now: float) -> Iterator[News]:
        """News that new records bring; ``now`` in seconds of any clock that goes forward."""
        self._format, self._caveats = portion.format, portion.caveats
        first = portion.caveats.first_damage
        if first and "cut off" not in first:  # its writer may be about to end it
            self.damage = self.damage or plain_text(f"{self.name}: {first}", None)
        self._examination.note(portion.events)
        records = self._records.of(portion.observations)
        if len(records):
            self._count += len(records)
            self._ended = False
            if self._silence.grew(now):
                yield self._news("goes on", "there are new records")
            if self._examination.extend(records) or self._count >= GROWTH * self._judged_at:
                yield from self._findings()
        if portion.ended and not self._ended:
            self._ended = True
            yield from self._findings()
            yield self._news("ended", "the log says that the run is over")

    def rest(self, now: float) -> Iterator[News]:
        """News of a run without new records: what the last ones brought, and that it is silent."""
        if self._count > self._judged_at:
            yield from self._findings()
        if not self._ended and self._silence.begins(now):
            usual = self._silence.usual_s
            usually = f", where one came every {_duration(usual)}" if usual is not None else ""
            lasts = _duration(self._silence.lasts_s(now))
            yield self._news("silent", f"no new record for {lasts}{usually}: it hangs, or is over")

    def _findings(self) -> Iterator[News]:
        self._judged_at = self._count
        for finding in self.diagnosis.findings:
            severity, events = SEVERITIES.index(finding.severity), finding.numbers.get("events", 1.0)
            gravest, most = self._told.get(finding.name, (-1, 0.0))
            if severity > gravest or events > most:
                self._told[finding.name] = max(severity, gravest), max(events, most)
                yield self._news("finding", finding.sentence, finding)

    def _news(self, kind: Kind, sentence: str, finding: Finding | None = None) -> News:
        step = self.last_step if finding is None else finding.step
        return News(
            kind=kind, run=self.name, log=self._log, place=self._place, step=step, sentence=sentence, finding=finding
        )


def _has_gaps(caveats: Caveats) -> bool:
    return not {SELDOM_A_NUMBER, NEVER_A_NUMBER}.isdisjoint(caveats.notes)


def _duration(seconds: float) -> str:
    """Seconds in words.

    >>> [_duration(seconds) for seconds in (0.5, 42.0, 600.0, 9000.0)]
    ['1 s', '42 s', '10 min', '2.5 h']
    """
    if seconds < 120:
        return f"{max(1.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
