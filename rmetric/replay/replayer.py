"""The flow of a replay: events in, columns out chunk by chunk, and at the end what was found.

The same detectors see the same records in the same order as in the run that wrote the log, so that replaying a log of
this project gives exactly the R and the alerts of that run. Every estimator carries its state from one chunk to the
next, and the size of a chunk changes no number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from rmetric.batches import NumberedEvent
from rmetric.compiled import interruptible
from rmetric.detectors import DETECTORS, StreamingDetector, default_detectors, online_detectors
from rmetric.errors import UserError
from rmetric.evaluation.truth import Truth, truth_of
from rmetric.log_lines import OnDamage
from rmetric.log_reader import Chunk, chunks
from rmetric.measurements import MEASUREMENTS, VERDICTS
from rmetric.metric import RMetric
from rmetric.records import Evaluations, Event, Observations, Run
from rmetric.replay.events import EventFilter, is_finite_number
from rmetric.replay.result import AlertEpisodes, LogAgreement, Replay
from rmetric.replay.settings import ReplaySettings
from rmetric.replay.signals import SIGNALS, Recovered, SignalRecovery, ValidationLosses
from rmetric.replay.trace import PlotCurves
from rmetric.states import History, states_of

Columns = dict[str, NDArray[Any]]
T = TypeVar("T")

REPLAY_CHUNK = 32_768
"""Records at a time: so many that calls, and handing the interpreter from thread to thread, cost little beside the
numbers."""


class Replayer:
    """Replays one log: feed its events to :meth:`run`, take the columns chunk by chunk, then :meth:`finish`.

    Parameters
    ----------
    settings
        Which R-Metric.
    chunk_records
        Records at a time. Changes the memory that is used, and which points of a plot's curves are kept.
    trace
        Receives the curves of a plot; raises :class:`UserError` for one of another kind.
    """

    def __init__(
        self,
        settings: ReplaySettings | None = None,
        chunk_records: int = REPLAY_CHUNK,
        *,
        trace: PlotCurves | None = None,
    ) -> None:
        if not isinstance(trace, PlotCurves | None):
            raise UserError(
                f"trace={trace!r} receives no curves; pass trace=curves, with curves = rmetric.replay.PlotCurves()"
            )
        self._settings = settings or ReplaySettings()
        self._chunk_records = chunk_records
        self._trace = trace
        self._filter = EventFilter()
        self._validation_losses, self._evaluations = ValidationLosses(), Evaluations()
        self._signals: SignalRecovery | None = None
        self._metric: RMetric | None = None
        self._notes: list[str] = []
        self._detectors: dict[str, StreamingDetector] = {**online_detectors(), **default_detectors()}
        self._detectors.pop("r_metric", None)
        self._first_alerts: dict[str, int] = {}
        self._episodes = AlertEpisodes()
        self._agreement: dict[str, LogAgreement] = {}
        self._measured: set[str] = set()
        self._history = History()
        self._records = 0
        self._first_step: int | None = None
        self._last_step: int | None = None

    def run(self, events: Iterator[NumberedEvent], on_damage: OnDamage) -> Iterator[Columns]:
        """Replay; yields for each chunk name → values of shape (n,).

        The names are ``step``, the losses, ``grad_norm``, ``lambda``, ``sigma_sq``, ``delta_l`` as the detectors saw
        them (NaN: not measured, infinity: not finite), ``lambda_norm``, ``sigma_sq_norm``, ``delta_l_norm``,
        ``r_metric``, ``r_metric_logged`` and ``alert_<detector>``. A normalised signal is NaN where
        the signal was not measured, ``r_metric`` where none of the three was.
        """
        for columns, observations, r, onset in _one_ahead(self._recovered(events, on_damage)):
            with interruptible():
                alerts = self._alert(observations, r, onset)
            yield columns | alerts

    def _recovered(
        self, events: Iterator[NumberedEvent], on_damage: OnDamage
    ) -> Iterator[tuple[Columns, Observations, NDArray[np.float64], int | None]]:
        """Columns of each chunk but for the alerts, its observations, R, and the step of the fault if known by then."""
        for chunk in chunks(self._filter.admit(events, on_damage), on_damage, self._chunk_records):
            if len(chunk.step):
                yield *self._extend(chunk), self._filter.metadata.injection_step
            else:
                self._recovery().extend_without_records(_of_hardware(chunk))
                self._note_evaluations(chunk, Observations(chunk.step))

    def _recovery(self) -> SignalRecovery:
        """The recovery of the signals; by now the log has said of which kind it is."""
        if self._signals is None:
            live = self._filter.metadata.is_live
            self._signals = SignalRecovery(live=live)
            if live:
                self._detectors = _detectors_of(self._filter.metadata.config.get("alert_thresholds", {}))
        return self._signals

    def _extend(self, chunk: Chunk) -> tuple[Columns, Observations, NDArray[np.float64]]:
        self._count(chunk.step)
        nothing = np.full(len(chunk.step), np.nan)
        logged = {name: chunk.columns.get(name, nothing) for name in (*MEASUREMENTS, *VERDICTS)}
        validation, evaluated = self._validation_losses.extend(logged["validation_loss"])
        signals = self._recovery().extend(_of_hardware(chunk), logged, validation, evaluated)
        verdicts = self._verdicts(signals)

        columns: Columns = {"step": chunk.step, "training_loss": logged["training_loss"]}
        columns |= {"validation_loss": validation, "grad_norm": logged["grad_norm"]}
        columns |= {name: signal.values for name, signal in signals.items()}
        columns["lambda"] = np.where(signals["lambda"].known, signals["lambda"].values, np.nan)
        columns |= {**verdicts, "r_metric_logged": logged["r_metric"]}
        self._compare(columns, logged, signals)
        self._note_measured(chunk.columns, signals)

        measured = {name: values for name, values in chunk.columns.items() if name not in VERDICTS}
        measured |= {"validation_loss": validation, **{name: signal.values for name, signal in signals.items()}}
        observations = Observations(chunk.step, measured, evaluated)
        self._history.extend(observations)
        columns |= _as_measured(verdicts, signals)
        if self._trace is not None:
            self._trace.extend(columns)
        self._note_evaluations(chunk, observations)
        return columns, observations, verdicts["r_metric"]

    def _note_evaluations(self, chunk: Chunk, observations: Observations) -> None:
        events = [event for _, event in chunk.events]
        for event in events:
            self._history.note(event)
        steps, losses = self._evaluations.extend(observations, events)
        if len(steps):  # the last one may stand in no record
            self._measured.add("validation_loss")
        if self._trace is not None:
            self._trace.extend_evaluations(steps, losses)

    def _count(self, steps: NDArray[np.int64]) -> None:
        self._records += len(steps)
        self._last_step = int(steps[-1])
        if self._first_step is None:
            self._first_step = int(steps[0])

    def _note_measured(self, logged: Columns, signals: Mapping[str, Recovered]) -> None:
        self._measured |= {name for name, signal in signals.items() if signal.measured.any()}
        self._measured |= {name for name in logged if name not in signals and not np.isnan(logged[name]).all()}

    def _verdicts(self, signals: Mapping[str, Recovered]) -> Columns:
        """The :data:`VERDICTS`: the normalised signals, the log's own where no raw value is known, and R.

        Each of shape (n,).
        """
        if self._metric is None:
            self._metric, self._notes = self._settings.metric(self._filter.metadata.config)
        r, *norms = map(np.asarray, self._metric.extend(*(signal.values for signal in signals.values())))
        stated = [signal.logged_norm for signal in signals.values()]
        if not all(np.isnan(norm).all() for norm in stated):
            norms = [np.where(np.isnan(theirs), ours, theirs) for theirs, ours in zip(stated, norms, strict=True)]
            r = self._metric.weights.weigh(*norms)
        return dict(zip(VERDICTS, (*norms, r), strict=True))

    def _compare(self, columns: Columns, logged: Mapping[str, Any], signals: Mapping[str, Recovered]) -> None:
        """Our numbers with the log's, recomputed signals where they are recomputed."""
        theirs = {name: logged[name] for name in VERDICTS}
        theirs |= {name: np.where(signals[name].recomputed, logged[name], np.nan) for name in ("delta_l", "lambda")}
        for name, values in theirs.items():
            self._agreement.setdefault(name, LogAgreement()).extend(columns[name], values)

    def _alert(self, observations: Observations, r: NDArray[np.float64], onset: int | None) -> Columns:
        """``alert_<detector>`` for all of them, each of shape (n,)."""
        assert self._metric is not None
        alerts = {"r_metric": r > self._metric.threshold}
        for name, detector in self._detectors.items():
            alerts[name] = detector.extend(observations) > detector.threshold
        for name, above in alerts.items():
            if name not in self._first_alerts and above.any():
                self._first_alerts[name] = int(observations.step[above.argmax()])
        self._episodes.extend(observations.step, alerts["r_metric"], onset)
        return {f"alert_{name}": above for name, above in alerts.items()}

    # --- the end ------------------------------------------------------------------------------------------------------

    def finish(self, name: str, source: str, log_format: str, notes: Sequence[str] = ()) -> Replay:
        """What the replay found.

        ``name``, ``source`` and ``log_format`` as :class:`Replay` has them; ``notes`` are those of the importer.
        """
        metadata = self._filter.metadata
        metric = self._metric or self._settings.metric(metadata.config)[0]
        run = metadata.as_run(name, self._last_step)
        truth, own = truth_of(run), metadata.own(self._records, self._last_step)
        named = own is None and metadata.names_its_run
        return Replay(
            name=name,
            source=source,
            format=log_format,
            converted=metadata.converted,
            records=self._records,
            first_step=self._first_step,
            last_step=self._last_step,
            unusable="" if self._records else "no records",
            preset=self._settings.preset,
            weights=metric.weights,
            threshold=metric.threshold,
            window=metric.window,
            model=run.model_type if own is not None or named else "unknown",
            fault=run.fault if named else "-",
            severity=run.severity if named else "-",
            outcome=self._outcome(run, truth),
            reason=truth.reason or "",
            onset=truth.onset,
            failure_step=truth.failure_step,
            detectors=("r_metric", *self._detectors),
            signals=self._recovery().rests_on,
            missing=tuple(name for name in SIGNALS if name not in self._measured),
            states=states_of(self._history.observations),
            lacks=self._lacks(),
            alerts=self._first_alerts,
            logged_alerts=metadata.logged_alerts,
            consulted=frozenset(self._consulted()),
            agreement=self._agreement,
            episodes=self._episodes.count,
            warning_step=self._warning_step(truth),
            own=own,
            own_alerts=[] if own is None else metadata.own_alerts,
            notes=[*self._notes, *notes],
        )

    def _outcome(self, run: Run, truth: Truth) -> str:
        """How the run ended, by the rule of the ground truth."""
        metadata = self._filter.metadata
        if run.terminal is None and (metadata.converted or not metadata.is_event_log):
            return "not stated"
        return "ended" if metadata.is_own and truth.kind == "clean" else truth.kind

    def _lacks(self) -> dict[str, str]:
        lacks = {name: detector.lack(self._measured) for name, detector in self._detectors.items()}
        return {name: lack for name, lack in lacks.items() if lack}

    def _consulted(self) -> Iterable[str]:
        """Detectors that the run itself consulted."""
        metadata = self._filter.metadata
        return metadata.config.get("alert_thresholds", {}) if metadata.is_live else online_detectors()

    def _warning_step(self, truth: Truth) -> int | None:
        """Begin of the first alert episode in [onset, failure)."""
        begin = self._episodes.warning
        if begin is None or truth.onset is None or truth.failure_step is None:
            return None
        return begin if begin < truth.failure_step else None


def _one_ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, none of them ``None``; from the second on each is made while the caller works on the one before.

    In a thread: reading and judging are mostly compiled code, which lets the interpreter go.
    """
    yield from islice(items, 1)
    with ThreadPoolExecutor(1) as thread:
        upcoming = thread.submit(next, items, None)
        while (item := upcoming.result()) is not None:
            upcoming = thread.submit(next, items, None)
            yield item


def _of_hardware(chunk: Chunk) -> list[tuple[int, Event]]:
    """Hardware events of a chunk, each with the index of the record that it stands before."""
    return [(index, event) for index, event in chunk.events if event["event"] == "HARDWARE_EVENT"]


def _as_measured(verdicts: Columns, signals: Mapping[str, Recovered]) -> Columns:
    """The verdicts, NaN in place of the 0 with which a signal counts that the log does not have."""
    measured = {f"{name}_norm": signal.measured for name, signal in signals.items()}
    measured["r_metric"] = np.logical_or.reduce([*measured.values()])
    return {name: np.where(measured[name], values, np.nan) for name, values in verdicts.items()}


def _detectors_of(thresholds: Mapping[str, Any]) -> dict[str, StreamingDetector]:
    """The default ones, and those that a live run consulted, at its thresholds, but for the R-Metric.

    Unknown ones are left out.
    """
    made = default_detectors()
    for name, threshold in thresholds.items():
        kind = DETECTORS[name] if name in DETECTORS else None  # noqa: SIM401 - a registry has no get
        if kind is not None and issubclass(kind, StreamingDetector) and is_finite_number(threshold):
            made[name] = kind(threshold=float(threshold))
    made.pop("r_metric", None)
    return made
