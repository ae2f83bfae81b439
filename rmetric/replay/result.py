"""Findings of the replay of one log: alerts, and agreement with the logged numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors import DETECTORS, ROBUST, RMetricDetector
from rmetric.episodes import Rearm
from rmetric.importers.read import OWN_FORMATS
from rmetric.log_writer import to_log_precision
from rmetric.replay.events import OwnAlert
from rmetric.replay.signals import NOT_IN_LOG, SIGNALS
from rmetric.states import State
from rmetric.verdict import RunSummary

LARGEST_DIFFERENCE = 1e-9
"""Largest difference from the log's own number that counts as agreement."""
MAX_EPISODES_KEPT = 4096
"""Begins of episodes that are kept for a fault that the log tells of later."""


@dataclass
class LogAgreement:
    """Comparison of a recomputed number with the one in the log."""

    records: int = 0
    """Records in which the log states it."""
    max_difference: float = 0.0
    """Largest absolute difference; infinite if only one of the two is a finite number. A value that the log holds
    rounded to its 7 digits is compared as rounded."""

    @property
    def agrees(self) -> bool:
        """True if no difference exceeds 1e-9."""
        return self.max_difference <= LARGEST_DIFFERENCE

    def extend(self, ours: NDArray[np.float64], logged: NDArray[np.float64]) -> None:
        """Compare the next records, each of shape (n,); NaN in ``logged``: the log does not state it."""
        stated = ~np.isnan(logged)
        if not stated.any():
            return
        ours, logged = ours[stated], logged[stated]
        self.records += len(ours)
        if np.array_equal(ours, logged):
            return
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.fmin(np.abs(ours - logged), np.abs(to_log_precision(ours) - logged))
        difference = np.where(np.isinf(ours) & np.isinf(logged), 0.0, difference)
        self.max_difference = max(self.max_difference, float(np.where(np.isnan(difference), np.inf, difference).max()))

    @property
    def in_brief(self) -> str:
        """``yes``, ``no`` with the largest difference, or ``-`` if the log does not state the number."""
        if not self.records:
            return "-"
        return "yes" if self.agrees else f"no ({self.max_difference:.2g})"

    def to_dict(self) -> dict[str, Any]:
        """Entry in the summary of a replay; strict JSON."""
        difference = self.max_difference if math.isfinite(self.max_difference) else None
        return {"records": self.records, "max_difference": difference, "agrees": self.agrees}


class AlertEpisodes:
    """Alert episodes of one detector: how many, when each begins, and which is the first at or after the fault."""

    def __init__(self) -> None:
        self.count = 0
        """Episodes so far."""
        self.begins: list[int] = []
        """Their first steps, of the first 4,096."""
        self.warning: int | None = None
        """Begin of the first episode at or after the fault; ``None`` as long as there is neither."""
        self._rearm = Rearm()

    def extend(self, steps: NDArray[np.int64], above: NDArray[np.bool_], onset: int | None = None) -> None:
        """The next records, each of shape (n,); ``onset``: step of the fault, if it is known by now."""
        begins = steps[self._rearm.extend(steps, above)].tolist()
        self.count += len(begins)
        if self.warning is None and onset is not None:
            self.warning = next((step for step in (*self.begins, *begins) if step >= onset), None)
        self.begins += begins[: MAX_EPISODES_KEPT - len(self.begins)]


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Findings of the replay of one log."""

    name: str
    """Under which its files are written."""
    source: str
    """The log's path as given."""
    format: str
    """Name of the importer."""
    converted: bool = False
    """True if the log was made of another program's."""
    records: int = 0
    first_step: int | None = None
    last_step: int | None = None
    damaged: int = 0
    """Reports of damage."""
    unusable: str = ""
    """Why no record could be had; empty if all is well."""
    preset: str = "paper"
    weights: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Weights of λ, σ² and ΔL."""
    threshold: float = math.nan
    window: int = 0
    """Length of the normalisation histories, in records."""
    model: str = "unknown"
    fault: str = "-"
    """``NONE`` for a control run, ``-`` where the log does not say."""
    severity: str = "-"
    outcome: str = "incomplete"
    """``failed``, ``recovered``, ``clean``, ``censored`` or ``incomplete`` as in :mod:`rmetric.evaluation`; ``ended``
    for a user's own run that did not fail, whose health :attr:`own` tells; ``not stated`` for a format that cannot say
    it. Only what says that it succeeded counts as a success."""
    reason: str = ""
    onset: int | None = None
    """Step of the fault."""
    failure_step: int | None = None
    signals: dict[str, str] = field(default_factory=dict)
    """Log name of a signal → what its normalised value rests on."""
    missing: tuple[str, ...] = ()
    """Log names of the signals of the R-Metric that no record has."""
    states: list[State] = field(default_factory=list)
    """States in which the run is at its end."""
    lacks: dict[str, str] = field(default_factory=dict)
    """Detector → what it reads that is not in the log, and what that means for its scores; the R-Metric apart."""
    alerts: dict[str, int] = field(default_factory=dict)
    """Detector → first alert step, of those that alerted."""
    detectors: tuple[str, ...] = ()
    """All that were consulted."""
    logged_alerts: dict[str, int] | None = None
    """The same as the log states it; ``None`` if it says nothing."""
    consulted: frozenset[str] | None = None
    """Detectors that the run itself consulted; ``None``: all that we know of."""
    agreement: dict[str, LogAgreement] = field(default_factory=dict)
    """Comparisons by log name: R, normalised signals, and recomputed signals against the log's own."""
    episodes: int = 0
    """Alert episodes of the R-Metric: after 50 quiet steps the next alert begins a new one."""
    warning_step: int | None = None
    """Begin of the first episode in [onset, failure)."""
    own: RunSummary | None = None
    """What the run's own monitor found, counted; ``None``: the log is no user's own live run."""
    own_alerts: list[OwnAlert] = field(default_factory=list)
    """Alerts of which that monitor told people, in their order, the first hundred."""
    notes: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """True if the log says how the run ended."""
        return self.outcome not in ("incomplete", "not stated")

    @property
    def signals_in_words(self) -> str:
        """What each signal rests on; those that are not in the log first, and together."""
        absent = [SIGNALS[name] for name, text in self.signals.items() if text == NOT_IN_LOG]
        parts = [f"{NOT_IN_LOG}: {', '.join(absent)}"] if absent else []
        parts += [f"{SIGNALS[name]} {text}" for name, text in self.signals.items() if text != NOT_IN_LOG]
        return "; ".join(parts)

    @property
    def r_in_words(self) -> str:
        """Which signals R is the sum of, where some of them are missing; empty otherwise."""
        if not self.missing:
            return ""
        left = [letter for name, letter in SIGNALS.items() if name not in self.missing]
        return f"R uses only {' and '.join(left)}" if left else "R is not known: none of its signals was measured"

    @property
    def first_alert(self) -> int | None:
        """Step of the R-Metric's first alert."""
        return self.alerts.get("r_metric")

    @property
    def shown_first_alert(self) -> int | None:
        """Step of the first alert that counts for this run.

        Its own monitor's; in a log of others the robust R-Metric's; else, in that of a study, the paper's R-Metric's.
        """
        if self.own is not None:
            return self.own.first_alert
        return self.robust_alert if self.is_of_others else self.first_alert

    @property
    def shown_detector(self) -> str:
        """Whose alert :attr:`shown_first_alert` is, in words; empty if there is none."""
        if self.shown_first_alert is None:
            return ""
        if self.own is not None:
            return f"own monitor, {self.own.first_detector}"
        return DETECTORS[ROBUST if self.is_of_others else RMetricDetector.name].title

    @property
    def robust_alert(self) -> int | None:
        """Step of the robust R-Metric's first alert."""
        return self.alerts.get(ROBUST)

    @property
    def is_of_others(self) -> bool:
        """Whether another program has written the log, and not a study of this project or of the author."""
        return self.converted or self.format not in OWN_FORMATS

    @property
    def lead_paper(self) -> int | None:
        """Failure step − first alert step, however early that is: the authors' counting. ``None`` unless the run failed
        and had an alert by then."""
        return self._lead(self.first_alert)

    @property
    def shown_lead(self) -> int | None:
        """The same of the alert that is shown as the first."""
        return self._lead(self.shown_first_alert)

    def _lead(self, alert: int | None) -> int | None:
        if self.failure_step is None or alert is None or alert > self.failure_step:
            return None
        return self.failure_step - alert

    @property
    def usable(self) -> bool | None:
        """True if an operator could have used an alert: an episode began in [onset, failure). ``None``: not known."""
        if self.failure_step is None or self.onset is None:
            return None
        return self.warning_step is not None

    @property
    def alerts_agree(self) -> bool | None:
        """True if every first alert is as the log has it; ``None`` if the log says nothing."""
        if self.logged_alerts is None:
            return None
        ours = {name: step for name, step in self.alerts.items() if self.consulted is None or name in self.consulted}
        return ours == self.logged_alerts

    def to_dict(self) -> dict[str, Any]:
        """Contents of the summary; strict JSON."""
        return {
            "log": self.source,
            "format": self.format,
            "records": self.records,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "damage_reports": self.damaged,
            "unusable": self.unusable or None,
            "complete": self.complete,
            "outcome": self.outcome,
            "reason": self.reason or None,
            "model": self.model,
            "fault": self.fault,
            "severity": self.severity,
            "onset_step": self.onset,
            "failure_step": self.failure_step,
            "r_metric": self._r_metric(),
            "signals": self.signals,
            "not_measured": list(self.missing),
            "detectors_that_lack": self.lacks,
            "states": [state.to_dict() for state in self.states],
            "own_monitor": self._own_monitor(),
            "alerts": self._first_alerts(),
            "alert_episodes": self.episodes,
            "first_alert_step": self.first_alert,
            "lead_paper_steps": self.lead_paper,
            "operator_could_use_it": self.usable,
            "warning_step": self.warning_step,
            "agreement_with_log": {name: found.to_dict() for name, found in self.agreement.items() if found.records},
            "alerts_agree_with_log": self.alerts_agree,
            "notes": self.notes,
        }

    def _r_metric(self) -> dict[str, Any]:
        return {
            "preset": self.preset,
            "weights": dict(zip(SIGNALS, self.weights, strict=True)),
            "threshold": self.threshold if math.isfinite(self.threshold) else None,
            "window_records": self.window,
        }

    def _own_monitor(self) -> dict[str, Any] | None:
        if self.own is None:
            return None
        return {
            "in_order": self.own.in_order,
            "verdict": self.own.sentence,
            "alerts": [vars(alert) for alert in self.own_alerts],
        }

    def _first_alerts(self) -> dict[str, dict[str, Any]]:
        """First alerts by detector, ours and the log's."""
        alerts: dict[str, dict[str, Any]] = {}
        for name in sorted({*self.detectors, *self.alerts, *(self.logged_alerts or {})}):
            alerts[name] = {"first_alert_step": self.alerts.get(name), "replayed": name in self.detectors}
            if self.logged_alerts is not None:
                alerts[name]["logged_first_alert_step"] = self.logged_alerts.get(name)
        return alerts
