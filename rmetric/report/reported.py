"""A run as a report shows it: its curves, its diagnosis, and the steps that are marked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rmetric.detectors import DEFAULT_DETECTORS, make_detector
from rmetric.diagnosis import Diagnosis, Examination
from rmetric.episodes import episodes
from rmetric.importers import LoggedRun
from rmetric.records import Run, step_of
from rmetric.replay import plain_text
from rmetric.report.curves import MOST_BUCKETS, Curve, curves_of
from rmetric.report.panels import R_ROBUST

R_DETECTOR = "r_metric_robust"
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
    """One run of a page."""

    name: str
    diagnosis: Diagnosis
    curves: Mapping[str, Curve]
    """By name, see :mod:`rmetric.report.panels`."""
    alerts: tuple[MarkedAlert, ...]
    """Begins of alert episodes, by step."""
    threshold: float
    """Of the robust R-Metric."""

    @classmethod
    def of(cls, logged: LoggedRun, *, source: str = "", buckets: int = MOST_BUCKETS) -> ReportedRun:
        """Diagnose a run and thin its curves.

        Cost: 0.2 ms a record, most of it in the detectors.

        Parameters
        ----------
        logged
            The run, and what is known of its log.
        source
            Path of the log.
        buckets
            Stretches of steps of which a curve keeps the lowest and the highest value.
        """
        run, observations = logged.run, logged.run.observations
        curves, examination = curves_of(observations, buckets), Examination()
        examination.extend(observations)
        alerts = _logged_alerts(run)
        threshold = float("nan")
        for name in DEFAULT_DETECTORS:
            detector = make_detector(name)
            scores = detector.score_run(observations)
            for row in episodes(observations.step, scores > detector.threshold).tolist():
                alerts.append(MarkedAlert(int(observations.step[row]), detector.title, logged=False))
            if name == R_DETECTOR and not np.isnan(scores).all():
                curves[R_ROBUST], threshold = Curve.of(observations.step, scores, buckets), detector.threshold
        return cls(
            name=plain_text(run.name),
            diagnosis=examination.diagnosis(run.name, source=source, format=logged.format, notes=logged.notes),
            curves=curves,
            alerts=tuple(sorted(alerts)[:MOST_ALERTS]),
            threshold=threshold,
        )

    def to_dict(self) -> dict[str, Any]:
        """What the page draws; the text of the findings stands in its tables."""
        return {
            "name": self.name,
            "curves": {name: curve.to_dict() for name, curve in self.curves.items()},
            "threshold": None if np.isnan(self.threshold) else self.threshold,
            "alerts": [{"step": step, "text": text, "logged": logged} for step, text, logged in self.alerts],
            "findings": [
                {"name": found.name, "severity": found.severity, "step": found.step, "until": found.until}
                for found in self.diagnosis.findings
            ],
        }


def _logged_alerts(run: Run) -> list[MarkedAlert]:
    """Alerts that a log states: its ALERT events, or the first alerts that its last record names."""
    stated = [(step_of(event), event.get("detector", "")) for event in run.events if event.get("event") == "ALERT"]
    stated = stated or [(step, name) for name, step in run.alerts.items()]
    return [MarkedAlert(step, plain_text(name) or "the run", logged=True) for step, name in stated if step is not None]
