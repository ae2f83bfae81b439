"""Replay a log: recompute its signals, R and every alert, in bounded memory, and say what each number rests on.

The same detectors see the same records in the same order as in the run that wrote the log, so that replaying a log of
this project gives exactly the R and the alerts of that run. Records go through in chunks; every estimator carries its
state from one to the next, and the size of a chunk changes no number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors import StreamingDetector, online_detectors
from rmetric.errors import UserError
from rmetric.evaluation.ground_truth import truth_of
from rmetric.evaluation.protocols import REARM_STEPS
from rmetric.importers import AUTO, IMPORTERS, detect_format
from rmetric.metric import PRESETS, RMetric
from rmetric.records import (
    MEASUREMENTS,
    TERMINAL_EVENTS,
    VERDICTS,
    Chunk,
    Event,
    NumberedEvent,
    Observations,
    OnDamage,
    Run,
    chunks,
    fresh_evaluations,
    held,
    to_log_precision,
)
from rmetric.registry import Registry
from rmetric.signals import HardwareFailureRate, ValidationDrift

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Columns = dict[str, NDArray[Any]]

CHUNK_RECORDS = 2048
"""Few enough to stay in the processor's cache."""
LOGGED = "logged"
"""The preset that takes weights and threshold from the log's own configuration."""
AGREEMENT = 1e-9
"""Largest difference from the log's own number that counts as agreement."""
MAX_EPISODES_KEPT = 4096
_MAX_TEXT = 200
_MAX_ALERTS = 256
_KEPT = ("step", *MEASUREMENTS, *VERDICTS)
_NUMBERS = frozenset({int, float, type(None)})
SIGNALS = {"lambda": "λ", "sigma_sq": "σ²", "delta_l": "ΔL"}
"""Log name → the field's own letter."""

PRESET_NAMES: Registry[str] = Registry("preset")
for _name in (*PRESETS, LOGGED):
    PRESET_NAMES.add(_name, _name)


# ---------------------------------------------------------------------------------------------------------------------
# Settings
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """With which R-Metric to replay. Raises :class:`UserError` for an unknown preset or weights that cannot be."""

    preset: str = "paper"
    """A name of :data:`rmetric.metric.PRESETS`, or ``logged``: weights and threshold as the log's configuration has
    them."""
    weights: tuple[float, float, float] | None = None
    """Weights of λ, σ² and ΔL in place of the preset's."""
    threshold: float | None = None
    """Threshold of R in place of the preset's."""

    def __post_init__(self) -> None:
        _ = PRESET_NAMES[self.preset]
        self.metric({})

    def metric(self, config: Mapping[str, Any]) -> tuple[RMetric, list[str]]:
        """A fresh metric for a log with that configuration, and notes on what the configuration leaves open."""
        metric, notes = PRESETS.get(self.preset, RMetric.paper)(), []
        changes: dict[str, Any] = {}
        logged_weights, logged_threshold = _weights_of(config), _threshold_of(config)
        if self.preset == LOGGED:
            missing = [
                name
                for name, value in (("weights", logged_weights), ("threshold", logged_threshold))
                if value is None and getattr(self, name) is None
            ]
            if missing:
                notes.append(f"the log states no {' and no '.join(missing)}; the paper's are used")
            changes = {"weights": logged_weights, "threshold": logged_threshold}
        elif self.weights is None and logged_weights is not None and logged_weights != tuple(metric.weights):
            shown = ", ".join(f"{weight:g}" for weight in logged_weights)
            notes.append(f"the log was written with the weights {shown}; --preset logged replays with them")
        changes |= {"weights": self.weights or changes.get("weights")}
        changes |= {"threshold": changes.get("threshold") if self.threshold is None else self.threshold}
        try:
            return metric.fresh(**{name: value for name, value in changes.items() if value is not None}), notes
        except ValueError as error:
            raise UserError(str(error)) from error


def parse_weights(text: str) -> tuple[float, float, float]:
    """Three weights out of ``a,b,c``; raises ``ValueError`` if they are no three numbers.

    >>> parse_weights("0.1, 0.45, 0.7")
    (0.1, 0.45, 0.7)
    """
    parts = [float(part) for part in text.split(",")]
    if len(parts) != 3 or not all(part >= 0 and math.isfinite(part) for part in parts):
        raise ValueError(f"{text!r} must be three finite numbers of at least 0: the weights of λ, σ² and ΔL")
    return parts[0], parts[1], parts[2]


def _weights_of(config: Mapping[str, Any]) -> tuple[float, float, float] | None:
    """The authors wrote them under three sets of names."""
    stated = config.get("r_metric_weights")
    if not isinstance(stated, dict):
        return None
    names = (("w1_lambda", "lambda"), ("w2_sigma_sq", "sigma_sq", "sigma_squared"), ("w3_delta_l", "delta_l"))
    found = [next((stated[name] for name in candidates if name in stated), None) for candidates in names]
    numbers = [float(value) for value in found if value is not None and _is_finite(value) and value >= 0]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def _threshold_of(config: Mapping[str, Any]) -> float | None:
    thresholds = config.get("alert_thresholds")
    stated = thresholds.get("r_metric") if isinstance(thresholds, dict) else config.get("r_metric_alert_threshold")
    return float(stated) if stated is not None and _is_finite(stated) else None


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


# ---------------------------------------------------------------------------------------------------------------------
# Results
# ---------------------------------------------------------------------------------------------------------------------


@dataclass
class Agreement:
    """How a recomputed number compares with the one in the log."""

    records: int = 0
    """Records in which the log states it."""
    max_difference: float = 0.0
    """Largest absolute difference; infinite if only one of the two is a finite number. A value that the log holds
    rounded to its 7 digits is compared as rounded."""

    @property
    def agrees(self) -> bool:
        """Whether no difference exceeds 1e-9."""
        return self.max_difference <= AGREEMENT

    def extend(self, ours: Floats, logged: Floats) -> None:
        """Compare the next records, each of shape (n,); NaN in ``logged``: the log does not state it."""
        stated = ~np.isnan(logged)
        if not stated.any():
            return
        ours, logged = ours[stated], logged[stated]
        self.records += len(ours)
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


class Series:
    """One curve for a plot: at most about 2 · ``buckets`` points, which keep the extremes of every stretch of steps.

    >>> curve = Series(buckets=2)
    >>> curve.extend(np.arange(100), np.where(np.arange(100) == 70, 9.0, 0.0))
    >>> len(curve.values) <= 4, curve.values.max()
    (True, np.float64(9.0))
    """

    def __init__(self, buckets: int = 1500) -> None:
        self._buckets = buckets
        self._steps = np.empty(0, dtype=np.int64)
        self._values = np.empty(0)
        self._pending: list[tuple[NDArray[np.int64], Floats]] = []
        self._length = 0

    def extend(self, steps: NDArray[np.int64], values: Floats) -> None:
        """Append points of increasing steps, each of shape (n,); non-finite ones are left out."""
        finite = np.isfinite(values)
        self._pending.append((steps[finite], values[finite]))
        self._length += int(finite.sum())
        if self._length > 8 * self._buckets:
            self._reduce()

    def _reduce(self) -> None:
        steps = np.concatenate([self._steps, *(steps for steps, _ in self._pending)])
        values = np.concatenate([self._values, *(values for _, values in self._pending)])
        self._pending = []
        if len(steps) > 2 * self._buckets:
            width = (int(steps[-1]) - int(steps[0])) // self._buckets + 1
            bucket = (steps - steps[0]) // width
            order = np.lexsort((values, bucket))
            edges = np.flatnonzero(np.diff(bucket[order])) + 1
            lowest, highest = order[np.append(0, edges)], order[np.append(edges, len(order)) - 1]
            kept = np.unique(np.concatenate([lowest, highest]))
            steps, values = steps[kept], values[kept]
        self._steps, self._values, self._length = steps, values, len(steps)

    @property
    def steps(self) -> NDArray[np.int64]:
        """Steps of the points, increasing."""
        self._reduce()
        return self._steps

    @property
    def values(self) -> Floats:
        """Values of the points, finite."""
        self._reduce()
        return self._values


@dataclass
class Trace:
    """What a plot needs of a replay, of bounded size."""

    series: dict[str, Series] = field(default_factory=dict)
    """By log name."""
    non_finite_steps: list[int] = field(default_factory=list)
    """First steps (up to 200) at which the training or the validation loss was not finite."""

    def extend(self, columns: Columns, evaluated: Bools) -> None:
        """Append a chunk of :meth:`Replayer.run`."""
        steps = columns["step"]
        for name in ("training_loss", "validation_loss", *VERDICTS):
            values = np.where(evaluated, columns[name], np.nan) if name == "validation_loss" else columns[name]
            self.series.setdefault(name, Series()).extend(steps, values)
        if len(self.non_finite_steps) < 200:
            broken = np.isinf(columns["training_loss"]) | (np.isinf(columns["validation_loss"]) & evaluated)
            self.non_finite_steps = [*self.non_finite_steps, *steps[broken].tolist()][:200]


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
        return None if self.logged_alerts is None else self.alerts == self.logged_alerts

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


# ---------------------------------------------------------------------------------------------------------------------
# The replay itself
# ---------------------------------------------------------------------------------------------------------------------


class Replayer:
    """Replays one log: feed its events to :meth:`run`, take the columns chunk by chunk, then :meth:`finish`.

    Parameters
    ----------
    settings
        Which R-Metric.
    chunk_records
        Records at a time. Changes the memory that is used and nothing else.
    """

    def __init__(self, settings: ReplaySettings | None = None, chunk_records: int = CHUNK_RECORDS) -> None:
        self.settings = settings or ReplaySettings()
        self.trace: Trace | None = None
        self._chunk_records = chunk_records
        self._detectors: dict[str, StreamingDetector] = online_detectors()
        self._detectors.pop("r_metric", None)
        self._metric: RMetric | None = None
        self._config: Event = {}
        self._started = False
        self._is_event_log = False
        self._keys: tuple[str, ...] = ()
        self._dropped: tuple[str, ...] = ()
        self._injected: Event | None = None
        self._last_event: Event | None = None
        self._notes: list[str] = []
        self._records, self._first_step, self._last_step = 0, None, None  # type: tuple[int, int | None, int | None]
        # Signals
        self._drift, self._failure_rate = ValidationDrift(), HardwareFailureRate()
        self._step_time_s, self._latest_step = math.nan, 0
        self._validation_raw = self._validation = self._recomputed_drift = math.nan
        self._logged_drift = self._logged_lambda = math.nan
        self._rounds_drift = True
        self._seen: dict[str, bool] = {}
        self._evaluations = 0
        # Alerts
        self._alerts: dict[str, int] = {}
        self._logged_alerts: dict[str, int] | None = None
        self._raw_alerts: Any = None
        self._clean_alerts: dict[str, int] = {}
        self._agreement: dict[str, Agreement] = {}
        self._episodes, self._record_before, self._last_alert = 0, -1, -1
        self._episode_starts: list[int] = []
        self._warning: int | None = None

    # --- events -------------------------------------------------------------------------------------------------------

    def run(self, events: Iterator[NumberedEvent], on_damage: OnDamage) -> Iterator[Columns]:
        """Replay; yields for each chunk name → values of shape (n,). Uses the events up: it changes them.

        The names are ``step``, the losses, ``grad_norm``, ``lambda``, ``sigma_sq``, ``delta_l`` as the detectors saw
        them (NaN: not measured, infinity: not finite), ``lambda_norm``, ``sigma_sq_norm``, ``delta_l_norm``,
        ``r_metric``, ``r_metric_logged`` and ``alert_<detector>``.
        """
        for chunk in chunks(self._tidy(events, on_damage), on_damage, self._chunk_records):
            for _, event in chunk.events:
                self._note(event)
            if len(chunk.step):
                yield self._extend(chunk)
            else:
                self._lambda(chunk, {name: np.empty(0) for name in ("lambda", "lambda_norm")})

    def _tidy(self, events: Iterator[NumberedEvent], on_damage: OnDamage) -> Iterator[NumberedEvent]:
        """Only what a replay needs of each event, checked, so that no line can hold memory for long."""
        for line, event in events:
            kind = event.get("event")
            if kind == "METRICS":
                self._is_event_log = True
                yield line, self._tidy_record(event)
            elif kind is None:
                yield line, self._tidy_record(event)
            elif not isinstance(kind, str):
                on_damage(line, f"event must be a name, not {type(kind).__name__}; skipped")
            elif kind == "EXPERIMENT_START":
                self._start(line, event, on_damage)
            elif kind == "HARDWARE_EVENT":
                time_s = self._time_of(event)
                if time_s is None:
                    on_damage(line, "HARDWARE_EVENT has no usable time_s, nor a step with a known step time; skipped")
                else:
                    yield line, {"event": kind, "time_s": time_s}
            elif kind == "FAULT_INJECTED" or kind in TERMINAL_EVENTS:
                tidy: Event = {key: plain_text(event[key]) for key in ("fault", "reason", "outcome") if key in event}
                tidy["event"] = kind
                step = event.get("step")
                if isinstance(step, float) and step.is_integer():
                    step = int(step)
                if isinstance(step, int) and not isinstance(step, bool) and 0 <= step < 2**53:
                    tidy["step"] = step
                else:
                    tidy["step"] = self._latest_step
                    on_damage(line, f"{kind} has no usable step; the latest record's is taken")
                yield line, tidy
            else:
                yield line, {"event": plain_text(kind)}

    def _tidy_record(self, event: Event) -> Event:
        keys = (*event,)
        if keys != self._keys:  # the same as in the record before, nearly always
            self._keys, self._dropped = keys, tuple(key for key in keys if key not in _KEPT)
        alerts, named, record = event.get("alerts"), event.get("non_finite"), event
        for key in self._dropped:
            del record[key]
        if not _NUMBERS.issuperset(map(type, record.values())):
            record = {key: value if type(value) in _NUMBERS else plain_text(value) for key, value in record.items()}
        step_time_s = record.get("step_time_s")
        if isinstance(step_time_s, float | int):
            self._step_time_s = step_time_s
        step = record.get("step")
        if type(step) is int and self._latest_step < step < 2**53:
            self._latest_step = step
        if type(alerts) is dict:
            if alerts != self._raw_alerts:
                self._raw_alerts = alerts if len(alerts) <= _MAX_ALERTS else None
                stated = [(name, step) for name, step in alerts.items() if type(step) is int]
                self._clean_alerts = {plain_text(name): step for name, step in stated[:_MAX_ALERTS]}
            self._logged_alerts = record["alerts"] = self._clean_alerts
        if type(named) is list:
            record["non_finite"] = [name for name in _KEPT if name in named]
        return record

    def _start(self, line: int, event: Event, on_damage: OnDamage) -> None:
        if self._started:
            on_damage(line, "a second EXPERIMENT_START; the first one's configuration is kept")
            return
        self._started = self._is_event_log = True
        late = bool(self._keys)
        if late:
            on_damage(line, "EXPERIMENT_START stands after the first records; its weights and threshold are not used")
        config = event.get("config")
        if not isinstance(config, dict):
            return
        injection = config.get("fault_injection")
        self._config = {
            "model_type": plain_text(config.get("model_type") or "unknown"),
            "fault_injection": {
                key: plain_text(injection[key])
                for key in ("type", "severity")
                if isinstance(injection, dict) and injection.get(key)
            },
        }
        for key in ("total_training_steps", "r_metric_alert_threshold", "step_time_s"):
            if _is_finite(config.get(key)) and not (late and key.startswith("r_metric")):
                self._config[key] = config[key]
        for key in ("r_metric_weights", "alert_thresholds"):
            if isinstance(config.get(key), dict) and len(config[key]) <= _MAX_ALERTS and not late:
                self._config[key] = config[key]
        if math.isnan(self._step_time_s):
            self._step_time_s = float(self._config.get("step_time_s", math.nan))

    def _time_of(self, event: Event) -> float | None:
        """Seconds of training time of a hardware event, from its step and the latest step time if need be."""
        time_s, step = event.get("time_s"), event.get("step")
        if _is_finite(time_s):
            return float(time_s)  # type: ignore[arg-type]
        if _is_finite(step) and math.isfinite(self._step_time_s):
            return float(step) * self._step_time_s  # type: ignore[arg-type]
        return None

    def _note(self, event: Event) -> None:
        if event["event"] == "HARDWARE_EVENT":
            return
        if event["event"] == "FAULT_INJECTED" and self._injected is None:
            self._injected = event
        self._last_event = event

    # --- signals ------------------------------------------------------------------------------------------------------

    def _extend(self, chunk: Chunk) -> Columns:
        if self._metric is None:
            self._metric, self._notes = self.settings.metric(self._config)
        metric, n = self._metric, len(chunk.step)
        self._records += n
        self._last_step = int(chunk.step[-1])
        if self._first_step is None:
            self._first_step = int(chunk.step[0])
        nothing = np.full(n, np.nan)
        logged = {name: chunk.columns.get(name, nothing) for name in (*MEASUREMENTS, *VERDICTS)}
        observed = {name: values for name, values in logged.items() if name in MEASUREMENTS and name in chunk.columns}

        raw = logged["validation_loss"]
        evaluated = fresh_evaluations(raw, self._validation_raw)
        validation = observed["validation_loss"] = held(raw, self._validation)
        self._validation_raw, self._validation = float(raw[-1]), float(validation[-1])

        drift, drift_norm, drift_recomputed = self._delta_l(validation, evaluated, logged)
        rate, rate_norm, rate_known, rate_recomputed = self._lambda(chunk, logged)
        sigma_seen = self._ever("sigma_sq", ~np.isnan(logged["sigma_sq"]))
        sigma_norm = self._substitute("sigma_sq", logged, sigma_seen)
        observed |= {"delta_l": drift, "lambda": rate}

        r, lambda_norm, sigma_sq_norm, delta_l_norm = (
            np.asarray(part) for part in metric.extend(rate, logged["sigma_sq"], drift)
        )
        given = [rate_norm, sigma_norm, drift_norm]
        if not all(np.isnan(part).all() for part in given):
            recomputed = [lambda_norm, sigma_sq_norm, delta_l_norm]
            norms = [np.where(np.isnan(a), b, a) for a, b in zip(given, recomputed, strict=True)]
            lambda_norm, sigma_sq_norm, delta_l_norm = norms
            w = metric.weights
            r = w.lambda_ * lambda_norm + w.sigma_sq * sigma_sq_norm + w.delta_l * delta_l_norm

        columns: Columns = {"step": chunk.step}
        columns |= {name: observed.get(name, nothing) for name in ("training_loss", "validation_loss", "grad_norm")}
        columns["lambda"] = np.where(rate_known, rate, np.nan)
        columns |= {"sigma_sq": logged["sigma_sq"], "delta_l": drift, "lambda_norm": lambda_norm}
        columns |= {"sigma_sq_norm": sigma_sq_norm, "delta_l_norm": delta_l_norm, "r_metric": r}
        columns["r_metric_logged"] = logged["r_metric"]
        for name in VERDICTS:
            self._compare(name, columns, logged[name])
        self._compare("delta_l", columns, np.where(drift_recomputed, logged["delta_l"], np.nan))
        self._compare("lambda", columns, np.where(rate_recomputed, logged["lambda"], np.nan))

        above = r > metric.threshold
        self._episodes_in(chunk.step, above)
        columns["alert_r_metric"] = self._first("r_metric", chunk.step, above)
        observations = Observations(chunk.step, observed, evaluated)
        for name, detector in self._detectors.items():
            alerts = detector.extend(observations) > detector.threshold
            columns[f"alert_{name}"] = self._first(name, chunk.step, alerts)
        if self.trace is not None:
            self.trace.extend(columns, evaluated)
        return columns

    def _delta_l(
        self, validation: Floats, evaluated: Bools, logged: Mapping[str, Floats]
    ) -> tuple[Floats, Floats, Bools]:
        """ΔL from the validation losses; the logged one, or its logged normalised value, before the first of them."""
        recomputed = np.full(len(validation), np.nan)
        # Two evaluations can have the same loss, to the digits of the log; a new logged ΔL tells them apart.
        as_logged = held(logged["delta_l"], self._logged_drift)
        anew = (
            ~np.isnan(as_logged) & (as_logged != np.append(self._logged_drift, as_logged[:-1])) & ~np.isnan(validation)
        )
        at = np.flatnonzero(evaluated | anew)
        if len(at):
            losses = validation[at]
            drifts = np.array([self._drift.update(loss) for loss in losses.tolist()])
            # A log that holds 7 digits was written by one that rounded ΔL to as many before it used it.
            short = np.logical_and.accumulate((to_log_precision(losses) == losses) & self._rounds_drift)
            recomputed[at] = np.where(short, to_log_precision(drifts), drifts)
            self._rounds_drift = bool(short[-1])
            self._evaluations += len(at)
        recomputed = held(recomputed, self._recomputed_drift)
        self._recomputed_drift, self._logged_drift = float(recomputed[-1]), float(as_logged[-1])
        can_recompute = self._ever("validation_loss", evaluated)
        seen = self._ever("delta_l", ~np.isnan(logged["delta_l"])) | can_recompute
        drift = np.where(can_recompute, recomputed, as_logged)
        return drift, self._substitute("delta_l", logged, seen), can_recompute

    def _lambda(self, chunk: Chunk, logged: Mapping[str, Floats]) -> tuple[Floats, Floats, Bools, Bools]:
        """λ from the hardware events; the logged one, or its logged normalised value, before the first of them."""
        n = len(chunk.step)
        recomputed, happened, any_event = np.empty(n), np.zeros(n, dtype=bool), False
        filled = 0
        for index, event in chunk.events:
            if event["event"] == "HARDWARE_EVENT":
                recomputed[filled:index] = self._failure_rate.value
                filled = index
                self._failure_rate.update(event["time_s"])
                happened[index:] = any_event = True
        recomputed[filled:] = self._failure_rate.value
        recomputed = to_log_precision(recomputed)
        as_logged = held(logged["lambda"], self._logged_lambda)
        self._logged_lambda = float(as_logged[-1]) if n else self._logged_lambda
        can_recompute = self._ever("HARDWARE_EVENT", happened)
        self._seen["HARDWARE_EVENT"] |= any_event
        seen = self._ever("lambda", ~np.isnan(logged["lambda"])) | can_recompute
        rate = np.where(can_recompute, recomputed, np.where(seen, as_logged, 0.0))
        return rate, self._substitute("lambda", logged, seen), seen, can_recompute

    def _ever(self, what: str, now: Bools) -> Bools:
        """Whether it has been seen in a record or one before it, shape (n,)."""
        ever = np.logical_or.accumulate(now) | self._seen.get(what, False)
        self._seen[what] = bool(ever[-1]) if len(ever) else self._seen.get(what, False)
        return ever

    def _substitute(self, signal: str, logged: Mapping[str, Floats], seen: Bools) -> Floats:
        """The normalised value that the log states where no raw one has been seen; NaN elsewhere."""
        stated = np.where(seen, np.nan, logged[f"{signal}_norm"])
        if not np.isnan(stated).all():
            self._seen[f"{signal}_norm"] = True
        return np.where(np.isinf(stated), 1.0, stated)

    def _compare(self, name: str, columns: Columns, logged: Floats) -> None:
        self._agreement.setdefault(name, Agreement()).extend(columns[name], logged)

    # --- alerts -------------------------------------------------------------------------------------------------------

    def _first(self, detector: str, steps: NDArray[np.int64], above: Bools) -> Bools:
        if detector not in self._alerts and above.any():
            self._alerts[detector] = int(steps[above.argmax()])
        return above

    def _episodes_in(self, steps: NDArray[np.int64], above: Bools) -> None:
        at = np.flatnonzero(above)
        if len(at):
            alert_before = np.append(self._last_alert, steps[at[:-1]])
            record_before = np.append(self._record_before, steps[:-1])[at]
            # The quiet records between two alerts must cover the steps; the first alert of all begins an episode.
            rearmed = (record_before - alert_before >= REARM_STEPS) | (alert_before < 0)
            starts = steps[at[rearmed]].tolist()
            self._last_alert = int(steps[at[-1]])
            self._episodes += len(starts)
        else:
            starts = []
        self._record_before = int(steps[-1])
        if self._warning is None and self._injected is not None:
            onset = self._injected["step"]
            self._warning = next((step for step in (*self._episode_starts, *starts) if step >= onset), None)
        self._episode_starts += starts[: MAX_EPISODES_KEPT - len(self._episode_starts)]

    # --- the end ------------------------------------------------------------------------------------------------------

    def finish(self, replay: Replay) -> Replay:
        """Fill in what the replay found."""
        metric = self._metric or self.settings.metric(self._config)[0]
        replay.records, replay.first_step, replay.last_step = self._records, self._first_step, self._last_step
        replay.preset, replay.weights = self.settings.preset, tuple(metric.weights)  # type: ignore[assignment]
        replay.threshold, replay.window = metric.threshold, metric.window
        replay.alerts, replay.logged_alerts = dict(self._alerts), self._logged_alerts
        replay.detectors = ("r_metric", *self._detectors)
        replay.agreement = self._agreement
        replay.episodes = self._episodes
        replay.notes += self._notes
        replay.signals = self._provenance()
        self._judge(replay)
        if self.trace is not None:
            replay.trace = self.trace
        return replay

    def _judge(self, replay: Replay) -> None:
        events = [event for event in (self._injected, self._last_event) if event is not None]
        horizon = np.array([] if self._last_step is None else [self._last_step], dtype=np.int64)
        if self._injected is not None and not self._config.get("fault_injection", {}).get("type"):
            self._config["fault_injection"] = {"type": self._injected.get("fault", "UNKNOWN")}  # the head was lost
        run = Run(replay.name, self._config, Observations(horizon), events)
        truth = truth_of(run)
        replay.onset, replay.failure_step, replay.reason = truth.onset, truth.failure_step, truth.reason or ""
        replay.outcome = truth.kind if self._is_event_log or run.terminal is not None else "not stated"
        if self._config.get("fault_injection") or self._started:
            replay.fault, replay.severity, replay.model = run.fault, run.severity, run.model_type
        if replay.onset is not None and replay.failure_step is not None and self._warning is not None:
            replay.warning_step = self._warning if self._warning < replay.failure_step else None

    def _provenance(self) -> dict[str, str]:
        seen = {name for name, ever in self._seen.items() if ever}
        rests_on = {}
        for signal, source in (("lambda", "HARDWARE_EVENT"), ("sigma_sq", ""), ("delta_l", "validation_loss")):
            if source in seen:
                few = " (fewer than two evaluations: counts as 0)" if source == "validation_loss" else ""
                rests_on[signal] = f"recomputed from {source}{few if self._evaluations < 2 else ''}"
            elif signal in seen:
                rests_on[signal] = "as logged"
            elif f"{signal}_norm" in seen:
                rests_on[signal] = "normalised value as logged"
            else:
                rests_on[signal] = "not in the log (counts as 0)"
        return rests_on


def plain_text(value: Any) -> str:
    """Text of a log that is fit for a file and a terminal: short, without control characters or broken Unicode."""
    short = str(value)[:_MAX_TEXT].encode("utf-8", "replace").decode()
    return "".join(character if character.isprintable() else "?" for character in short)


# ---------------------------------------------------------------------------------------------------------------------
# One log
# ---------------------------------------------------------------------------------------------------------------------


def replay_log(
    path: str | Path,
    *,
    settings: ReplaySettings | None = None,
    log_format: str = AUTO,
    mapping: Mapping[str, str] | None = None,
    on_damage: OnDamage | None = None,
    sink: Callable[[Columns], None] | None = None,
    trace: bool = False,
    chunk_records: int = CHUNK_RECORDS,
) -> Replay:
    """Replay one log in bounded memory.

    Parameters
    ----------
    path
        A log of any format in :data:`rmetric.importers.IMPORTERS`.
    log_format
        Name of its format; ``auto`` judges by its content.
    mapping
        Our name → the log's name of a column.
    on_damage
        Receives ``(line, message)``; without it, the first damage raises :class:`UserError`.
    sink
        Receives the columns of each chunk, see :meth:`Replayer.run`.
    trace
        Keep what a plot needs.

    Raises
    ------
    UserError
        If the file cannot be read, is of no known format, or lacks a column for the step.
    """
    file = Path(path)

    def strictly(line: int, message: str) -> None:
        raise UserError(f"{plain_text(file)}, line {line}: {plain_text(message)}")

    report = on_damage or strictly
    importer = None if log_format == AUTO else IMPORTERS[log_format]
    replayer = Replayer(settings, chunk_records)
    replayer.trace = Trace() if trace else None
    with _reading(file):
        name = log_format if importer is not None else detect_format(file, mapping)
        events = IMPORTERS[name](file, mapping or {}, report)
    for columns in replayer.run(_guarded(events, file), report):
        if sink is not None:
            sink(columns)
    replay = replayer.finish(Replay(name=file.stem, source=plain_text(file), format=name))
    if not replay.records:
        replay.unusable = "no records"
        report(1, "an empty file" if not file.stat().st_size else "no record in the whole file could be used")
    return replay


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{plain_text(file)} cannot be read ({error.strerror}); check the path and its permissions"
        ) from error


def _guarded(events: Iterator[NumberedEvent], file: Path) -> Iterator[NumberedEvent]:
    """The same events; an error in reading names the log, and not the output."""
    with _reading(file):
        yield from events
