"""What the replay of one log found."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from rmetric.replay.agreement import Agreement
from rmetric.replay.signals import SIGNALS
from rmetric.replay.trace import Trace


@dataclass(kw_only=True)
class Replay:
    """What the replay of one log found."""

    name: str
    """Under which its files are written."""
    source: str
    """The log's path as given."""
    format: str
    """Name of the importer."""
    records: int = 0
    first_step: int | None = None
    last_step: int | None = None
    damaged: int = 0
    """Reports of damage."""
    unusable: str = ""
    """Why no record could be had; empty if all is well."""
    preset: str = "paper"
    weights: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Of λ, σ² and ΔL."""
    threshold: float = math.nan
    window: int = 0
    """Length of the normalisation histories, in records."""
    model: str = "unknown"
    fault: str = "-"
    """``NONE`` for a control run, ``-`` where the log does not say."""
    severity: str = "-"
    outcome: str = "incomplete"
    """``failed``, ``recovered``, ``clean``, ``censored`` or ``incomplete`` as in :mod:`rmetric.evaluation`; ``not
    stated`` for a format that cannot say it. Only what says that it succeeded counts as a success."""
    reason: str = ""
    onset: int | None = None
    """Step of the fault."""
    failure_step: int | None = None
    signals: dict[str, str] = field(default_factory=dict)
    """Log name of a signal → what its normalised value rests on."""
    alerts: dict[str, int] = field(default_factory=dict)
    """Detector → first alert step, of those that alerted."""
    detectors: tuple[str, ...] = ()
    """All that were consulted."""
    logged_alerts: dict[str, int] | None = None
    """What the log says of the same; ``None`` if it says nothing."""
    consulted: frozenset[str] | None = None
    """Detectors that the run itself consulted; ``None``: all that we know of."""
    agreement: dict[str, Agreement] = field(default_factory=dict)
    """By log name: R, normalised signals, and recomputed signals against the log's own."""
    episodes: int = 0
    """Alert episodes of the R-Metric: after 50 quiet steps the next alert begins a new one."""
    warning_step: int | None = None
    """Begin of the first episode in [onset, failure)."""
    notes: list[str] = field(default_factory=list)
    trace: Trace = field(default_factory=Trace, repr=False)

    @property
    def complete(self) -> bool:
        """Whether the log says how the run ended."""
        return self.outcome not in ("incomplete", "not stated")

    @property
    def first_alert(self) -> int | None:
        """Of the R-Metric."""
        return self.alerts.get("r_metric")

    @property
    def lead_paper(self) -> int | None:
        """Failure step − first alert step, however early that is: the authors' counting. ``None`` unless the run failed
        and had an alert by then."""
        if self.failure_step is None or self.first_alert is None or self.first_alert > self.failure_step:
            return None
        return self.failure_step - self.first_alert

    @property
    def usable(self) -> bool | None:
        """Whether an operator could have used an alert: an episode began in [onset, failure). ``None``: not known."""
        if self.failure_step is None or self.onset is None:
            return None
        return self.warning_step is not None

    @property
    def alerts_agree(self) -> bool | None:
        """Whether every first alert is as the log has it; ``None`` if the log says nothing."""
        if self.logged_alerts is None:
            return None
        ours = {name: step for name, step in self.alerts.items() if self.consulted is None or name in self.consulted}
        return ours == self.logged_alerts

    def to_dict(self) -> dict[str, Any]:
        """For the summary; strict JSON."""
        names = sorted({*self.detectors, *self.alerts, *(self.logged_alerts or {})})
        alerts = {}
        for name in names:
            alerts[name] = {"first_alert_step": self.alerts.get(name), "replayed": name in self.detectors}
            if self.logged_alerts is not None:
                alerts[name]["logged_first_alert_step"] = self.logged_alerts.get(name)
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
            "r_metric": {
                "preset": self.preset,
                "weights": dict(zip(SIGNALS, self.weights, strict=True)),
                "threshold": self.threshold if math.isfinite(self.threshold) else None,
                "window_records": self.window,
            },
            "signals": self.signals,
            "alerts": alerts,
            "alert_episodes": self.episodes,
            "first_alert_step": self.first_alert,
            "lead_paper_steps": self.lead_paper,
            "operator_could_use_it": self.usable,
            "warning_step": self.warning_step,
            "agreement_with_log": {
                name: {
                    "records": found.records,
                    "max_difference": found.max_difference if math.isfinite(found.max_difference) else None,
                    "agrees": found.agrees,
                }
                for name, found in self.agreement.items()
                if found.records
            },
            "alerts_agree_with_log": self.alerts_agree,
            "notes": self.notes,
        }
