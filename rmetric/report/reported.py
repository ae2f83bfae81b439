"""A run as a report shows it: its curves, its diagnosis, and the steps that are marked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rmetric.detectors import ROBUST, StreamingDetector, default_detectors
from rmetric.diagnosis import Diagnosis, Examination
from rmetric.diagnosis.new_records import NewRecords
from rmetric.importers import LoggedPortions
from rmetric.log_reader import Chunk, observations_of
from rmetric.records import Evaluations, Observations, step_of
from rmetric.replay import AlertEpisodes, plain_text
from rmetric.report.curves import ThinnedCurve, extend_curves
from rmetric.report.panels import R_ROBUST

MOST_ALERTS = 200
"""Alerts that are marked in a run."""


class MarkedAlert(NamedTuple):
    """One alert."""

    step: int
    detector: str
    logged: bool
    """True if the run itself raised it and its log says so; else it comes from a replay."""


@dataclass(frozen=True, kw_only=True)
class ReportedRun:
    name: str
    diagnosis: Diagnosis
    curves: Mapping[str, ThinnedCurve]
    """By name, see :mod:`rmetric.report.panels`."""
    alerts: tuple[MarkedAlert, ...]
    """Begins of alert episodes, by step."""
    threshold: float
    """Of the robust R-Metric."""

    @classmethod
    def of(cls, log: LoggedPortions, *, source: str = "") -> ReportedRun | None:
        """Diagnose a run and thin its curves, portion by portion; ``None`` if it holds no record.

        Cost: 0.2 ms a record, most of it in the detectors.
        """
        curves: dict[str, ThinnedCurve] = {}
        records, evaluations, examination, logged = NewRecords(), Evaluations(), Examination(), _LoggedAlerts()
        watches = {name: _Watch(detector) for name, detector in default_detectors().items()}
        for portion in log.portions:
            logged.extend(portion)
            observations = records.of(observations_of(portion))
            events = [event for _, event in portion.events]
            extend_curves(curves, observations, evaluations.extend(observations, events))
            examination.extend(observations)
            examination.note(events)
            for watch in watches.values():
                watch.extend(observations)
        if records.last_step is None:
            return None
        r = watches[ROBUST]
        alerts = [alert for watch in watches.values() for alert in watch.alerts]
        return cls(
            name=plain_text(log.name),
            diagnosis=examination.diagnosis_of(log, source),
            curves=curves | ({R_ROBUST: r.curve} if r.curve.records else {}),
            alerts=tuple(sorted([*logged.alerts, *alerts])[:MOST_ALERTS]),
            threshold=r.detector.threshold,
        )

    def to_dict(self, buckets: int) -> dict[str, Any]:
        """What the page draws, each curve in so many stretches; the text of the findings stands in its tables."""
        return {
            "name": self.name,
            "curves": {name: curve.to_dict(buckets) for name, curve in self.curves.items()},
            "threshold": self.threshold if R_ROBUST in self.curves else None,
            "alerts": [{"step": step, "text": text, "logged": logged} for step, text, logged in self.alerts],
            "findings": [
                {"name": found.name, "severity": found.severity, "step": found.step, "until": found.until}
                for found in self.diagnosis.findings
            ],
        }


class _Watch:
    """A detector, the curve of its scores, and the begins of its alert episodes."""

    def __init__(self, detector: StreamingDetector) -> None:
        self.detector = detector
        self.curve = ThinnedCurve()
        self._episodes = AlertEpisodes()

    def extend(self, observations: Observations) -> None:
        scores = self.detector.extend(observations)
        self.curve.extend(observations.step, scores)
        self._episodes.extend(observations.step, scores > self.detector.threshold)

    @property
    def alerts(self) -> list[MarkedAlert]:
        return [MarkedAlert(step, self.detector.title, logged=False) for step in self._episodes.begins]


class _LoggedAlerts:
    """Alerts that a log states: its ALERT events, or the first alerts that its last record names."""

    def __init__(self) -> None:
        self._events: list[MarkedAlert] = []
        self._first: Mapping[str, int] = {}

    def extend(self, portion: Chunk) -> None:
        events = [event for _, event in portion.events if event.get("event") == "ALERT"]
        stated = [_logged(step_of(event), event.get("detector", "")) for event in events]
        self._events += [alert for alert in stated if alert is not None][: MOST_ALERTS - len(self._events)]
        self._first = (portion.alerts or {}) if len(portion.step) else self._first

    @property
    def alerts(self) -> list[MarkedAlert]:
        first = (_logged(step, name) for name, step in self._first.items())
        return self._events or [alert for alert in first if alert is not None]


def _logged(step: int | None, detector: object) -> MarkedAlert | None:
    return None if step is None else MarkedAlert(step, plain_text(detector) or "the run", logged=True)
