"""Examination of a run: records in, as they come or all at once; findings out at any time, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence

from rmetric.diagnosis.events import Event, EventSeeker
from rmetric.diagnosis.findings import findings_of
from rmetric.diagnosis.not_judged import not_judged
from rmetric.diagnosis.result import Diagnosis
from rmetric.records import Observations
from rmetric.states import History, states_of


class Examination:
    """Judges one run while its records arrive; the size of the portions changes nothing.

    >>> import numpy as np
    >>> examination = Examination()
    >>> losses = np.append(2.0 - 0.001 * np.arange(200), np.nan)
    >>> losses = np.where(np.isnan(losses), np.inf, losses)
    >>> events = examination.extend(Observations(np.arange(201), {"training_loss": losses}))
    >>> [event.kind for event in events], examination.diagnosis("run").findings[0].step
    (['NOT_FINITE'], 200)
    """

    def __init__(self) -> None:
        self._seeker = EventSeeker()
        self._history = History()
        self._measured: set[str] = set()
        self._first_step: int | None = None
        self._last_step: int | None = None

    def extend(self, observations: Observations) -> list[Event]:
        """Judge the next records; the events that begin in them."""
        if not len(observations):
            return []
        self._history.extend(observations)
        self._measured |= {name for name in observations.columns if observations.has(name)}
        self._first_step = int(observations.step[0]) if self._first_step is None else self._first_step
        self._last_step = int(observations.step[-1])
        return list(self._seeker.extend(observations))

    def diagnosis(self, run: str, *, source: str = "", format: str = "memory", notes: Sequence[str] = ()) -> Diagnosis:
        """What is known of the run by now.

        Parameters
        ----------
        run, source, format
            Its name, and path and format of its log.
        notes
            What is to be said about the log.
        """
        history, records = self._history.observations, self._seeker.records
        return Diagnosis(
            run=run,
            source=source,
            format=format,
            records=records,
            first_step=self._first_step,
            last_step=self._last_step,
            findings=findings_of(self._seeker.events, states_of(history), records, self._steps_a_record),
            not_judged=not_judged(history, self._measured, records),
            notes=tuple(notes),
        )

    @property
    def _steps_a_record(self) -> float:
        if self._first_step is None or self._last_step is None or self._seeker.records < 2:
            return 1.0
        return (self._last_step - self._first_step) / (self._seeker.records - 1)
