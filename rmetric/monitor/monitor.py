"""Two lines in anybody's training loop: watch a live run, write its log, warn before it fails."""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rmetric.detectors import StreamingDetector
from rmetric.monitor.alerts import Alert
from rmetric.monitor.detector_set import Detections, DetectorSet
from rmetric.monitor.dispersion import WorkerLost, dispersion_sources
from rmetric.monitor.estimators import Estimators
from rmetric.monitor.hardware import SLOW_STEPS, HardwareReport, HardwareWatch, StepTimes
from rmetric.monitor.measures import ENTRIES, GradientNorms, UpdateSize
from rmetric.monitor.recorder import Recorder, start_config, vocabulary_of
from rmetric.monitor.repair.context import RepairRecord
from rmetric.monitor.repair.policy import Policy
from rmetric.monitor.repair.runner import PolicyRunner
from rmetric.monitor.sinks import JsonlSink, Sink, Sinks
from rmetric.monitor.transfer import DeviceTransfer, StepComputation
from rmetric.records import Event, Observation
from rmetric.state import restore, state_of

if TYPE_CHECKING:
    from rmetric.monitor.measures import AttentionLogits
    from rmetric.monitor.mechanism import MechanismWatch
    from rmetric.monitor.mechanism.execution import PendingMeasurement
    from rmetric.monitor.mechanism.watch import MonitorSelection

LOGGER = logging.getLogger("rmetric")
DEFAULT_DETECTORS = ("numerics", "robust_z")
"""Those that stay silent on a healthy run. The R-Metric in the paper's setting is logged in any case, but it alerts in
every run, healthy or not (docs/FINDINGS.md); name it to have its alerts as well."""
VETO_DETECTORS = ("numerics",)
"""Those whose alarm vetoes an update: only numbers that no healthy step produces."""
Answer = TypeVar("Answer")


class Failure(Protocol):
    """How a run failed."""

    @property
    def step(self) -> int: ...
    @property
    def reason(self) -> str: ...


def _never_breaks(otherwise: Any) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Whatever goes wrong inside the monitor is logged once and ends the monitor, never the training."""

    def guard(method: Callable[..., Answer]) -> Callable[..., Answer]:
        @functools.wraps(method)
        def guarded(self: TrainingMonitor, *args: Any, **kwargs: Any) -> Answer:
            if not self.enabled:
                return otherwise
            try:
                return method(self, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - a monitor must not break what it watches
                self._disable(error)
                return otherwise

        return guarded

    return guard


class TrainingMonitor:
    """Watches a training run: measures, scores, warns, logs.

    >>> import torch, rmetric
    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    >>> with rmetric.TrainingMonitor(model, optimizer, hardware=False) as monitor:
    ...     for _ in range(3):
    ...         loss = model(torch.ones(2, 4)).square().mean()
    ...         loss.backward()
    ...         proceed = monitor.step(loss)  # after backward, before clipping and optimizer.step
    ...         optimizer.step()
    ...         optimizer.zero_grad()
    >>> monitor.last.step, monitor.alerts
    (3, {})

    Parameters
    ----------
    model
        The module that is trained, as it is or under ``DistributedDataParallel`` or ``fully_shard``. Then make the
        monitor and call :meth:`step` in every process; wrap the model, and register hooks of your own, before.
    optimizer
        Its optimizer: the learning rate is read off the first parameter group.
    log
        Path of the JSONL log, written by the first process only; ``None``: none. An existing log is never overwritten.
    on_alert
        Called with one :class:`Alert` where an alert episode begins, in the first process only.
    detectors
        Names or detectors that may raise an alert.
    sync
        Wait for the numbers of a step before :meth:`step` returns, so that it can veto the update. Otherwise they are
        looked at one step later and nothing ever waits for the device.
    config
        Further entries of the log's ``config``, such as ``experiment_id``, ``seed``, ``model_type``.
    sinks
        Where else the events go.
    hardware
        A :class:`HardwareWatch`, which stays yours to close; ``None``: one over what the first process's machine has;
        ``False``: slow steps only.
    vocabulary
        Number of tokens the model tells apart; ``None``: from ``model.config.vocab_size`` if there is such a thing.
    scaler
        A ``torch.amp.GradScaler``; call its ``unscale_(optimizer)`` before :meth:`step`. Up to 8 non-finite steps in a
        row are then its normal work.
    policy
        What is done about a step that looks wrong: a policy of :mod:`rmetric.monitor.repair`, or several in the
        order in which they are asked; ``None``: nothing. With a policy the numbers of a step are waited for.
    attention_logits
        Also measure the largest attention logit (transformers models; costs extra, see docs/monitor.md).
    mechanism
        Also look inside the model every so many steps (docs/mechanism.md): ``"auto"``, names of monitors, or a
        :class:`~rmetric.monitor.mechanism.MechanismWatch`, which is closed with this monitor; ``None``: no. The first
        process looks.
    update_entries
        Entries of the parameters whose change is measured, evenly spread; ``None``: all.
    clock
        Seconds, for step times.

    Raises
    ------
    UserError
        For an unknown detector, a log that cannot be where it should, a distributed set-up that cannot be watched.
        After construction nothing raises.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        log: str | PathLike[str] | None = None,
        on_alert: Callable[[Alert], object] | None = None,
        detectors: Sequence[str | StreamingDetector] = DEFAULT_DETECTORS,
        sync: bool = False,
        config: Mapping[str, Any] | None = None,
        sinks: Sequence[Sink] = (),
        hardware: HardwareWatch | bool | None = None,
        vocabulary: int | None = None,
        scaler: torch.amp.GradScaler | None = None,
        policy: Policy | Iterable[Policy] | None = None,
        attention_logits: bool = False,
        mechanism: MechanismWatch | MonitorSelection | None = None,
        update_entries: int | None = ENTRIES,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.enabled = True
        """Whether it still watches: not after :meth:`close`, and not after an error inside."""
        self.step_number = 0
        """Calls of :meth:`step` so far, those before a resume included."""
        self.last: Observation | None = None
        """The latest observation that was looked at."""
        self._optimizer, self._sync, self._clock = optimizer, sync, clock
        self._processes = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
        vocabulary = vocabulary_of(model) if vocabulary is None else vocabulary
        self._gradients = GradientNorms(model)
        self._panel = DetectorSet(detectors, self._gradients.names, vocabulary)
        thresholds = {name: detector.threshold for name, detector in self._panel.detectors.items()}
        whole = start_config(model, thresholds, vocabulary, self._processes, config or {})
        first = self._processes == 1 or dist.get_rank() == 0
        self._on_alert = on_alert if first else None
        own = [JsonlSink(log)] if log is not None else []
        self._recorder = Recorder(Sinks([*own, *sinks] if first else []), whole, self._gradients.names)
        self._update = UpdateSize(model, update_entries)
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._estimators = Estimators(vocabulary, scaled=self._scaler is not None)
        self._step_times = StepTimes()
        self._attention = _attention_logits(model) if attention_logits else None
        self._mechanism = _mechanism_watch(model, optimizer, mechanism) if first and mechanism is not None else None
        self._spreads = dispersion_sources(model)
        # One process watches all that its host has: if every process did, λ would count each event many times.
        self._own_watch = HardwareWatch.automatic() if first and hardware in (None, True) else None
        self._watch = hardware if isinstance(hardware, HardwareWatch) else self._own_watch
        self._reports: list[HardwareReport] = []
        self._validation: list[float] = []
        self._pending: _Pending | None = None
        self._non_finite_since: int | None = None
        self._before_s = math.nan
        self._started = self._resumed = False
        self._above: tuple[str, ...] = ()
        self._repairs = self._repairs_of(policy, model, vocabulary) if policy is not None else None

    @property
    def alerts(self) -> dict[str, int]:
        """Detector → step of its first alert."""
        return dict(self._panel.first)

    @property
    def repairs(self) -> list[RepairRecord]:
        """What the policies did, in the order of the steps."""
        return list(self._repairs.log) if self._repairs is not None else []

    # -- in the training loop -----------------------------------------------------------------------------------------

    @_never_breaks(True)
    def step(self, loss: Tensor | float, *, recompute: Callable[[], Tensor | float] | None = None) -> bool:
        """Tell of one step: after ``backward``, before clipping and ``optimizer.step``.

        Parameters
        ----------
        loss
            Of the step, nats; a tensor stays on its device.
        recompute
            For a policy: zeroes the gradients, does once more what the training loop did for this step up to here
            (forward and backward passes of the same batch, all micro-batches; ``scaler.unscale_``), returns the loss.

        Returns
        -------
        bool
            Whether to go on with the update. Always ``True`` unless ``sync=True`` or a policy skips it.
        """
        if not self._started:
            self._started = True
            self._recorder.start(self.step_number if self._resumed else None)
        self.step_number += 1
        computation, proceed = self._computed(loss), True
        if self._repairs is not None:
            recompute = self._mechanism.restarting(recompute) if self._mechanism and recompute else recompute
            computation, proceed = self._repairs.before_update(self.step_number, computation, recompute, self._above)
        previous, self._pending = self._pending, self._measure(computation)
        if previous is not None:
            self._process(previous)
        if not self._sync and self._repairs is None:
            return True
        verdict = self._process_pending()
        if not self._sync:
            return proceed
        return self._agreed(proceed and (verdict is None or not {*VETO_DETECTORS} & {*verdict.above}))

    @_never_breaks(None)
    def validation(self, loss: Tensor | float) -> None:
        """Tell of a validation loss, nats; it stands in the record of the next step."""
        self._validation.append(float(loss))
        self._before_s = math.nan  # an evaluation is no part of a step's time

    @_never_breaks(None)
    def hardware_event(self, component: str, *, kind: str = "correctable", worker: int = 0, details: str = "") -> None:
        """Tell of a hardware event that something else saw (a cluster manager); it counts for λ.

        ``kind`` is ``correctable``, or ``fatal``: that worker is lost.
        """
        self._reports.append(HardwareReport(component, kind, worker, details))

    @_never_breaks(None)
    def note(self, event: str, *, step: int | None = None, **fields: Any) -> None:
        """Put a line of your own into the log, at the step that is being done unless told otherwise."""
        self._recorder.note({"event": event, "step": self.step_number + 1 if step is None else step, **fields})

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What is done in here (an evaluation of your own, a snapshot) is no part of a step's time."""
        seconds = self.seconds_into_step
        try:
            yield
        finally:
            self.continue_step(seconds)

    @property
    def seconds_into_step(self) -> float:
        """Seconds since the last :meth:`step`; NaN before the first, and after a validation or a checkpoint."""
        return self._clock() - self._before_s

    def continue_step(self, seconds: float) -> None:
        """Let the step that is being done be that old already: for a fork, which goes on in the middle of its twin."""
        self._before_s = self._clock() - seconds

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self, failure: Failure | None = None) -> None:
        """End the log properly and give back every hook. May be called twice.

        The last line says how the run ended: as ``failure`` has it; else NAN_LOSS if the loss was not finite to the
        end; else success. A run that is left through an exception has no such line: it is incomplete.
        """
        if self._pending is not None:  # a validation loss without a step after it joins the last step
            self._pending.validation += self._validation
            self._validation = []
        self._process_pending()
        self._leave(self._terminal(failure))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif WorkerLost.caused(error):
            self._end_with_lost_worker(error)
        else:
            self.detach()

    def detach(self) -> None:
        """Stop watching and give back every hook; the log is left without an end, for somebody else to write it."""
        self._process_pending()
        self._leave(None)

    def _terminal(self, failure: Failure | None) -> Event:
        if failure is not None:
            return {"event": "EXPERIMENT_FAILURE", "step": failure.step, "reason": failure.reason}
        if self._non_finite_since is not None:
            return {"event": "EXPERIMENT_FAILURE", "step": self._non_finite_since, "reason": "NAN_LOSS"}
        return {"event": "EXPERIMENT_SUCCESS", "step": self.step_number}

    @_never_breaks(None)
    def _end_with_lost_worker(self, error: BaseException) -> None:
        """A peer died: the event counts for λ in one more record, and the run has failed."""
        self._process_pending()
        details = f"{type(error).__name__} in the step after {self.step_number}"
        self.hardware_event("worker", kind="fatal", worker=WorkerLost.worker_of(error), details=details)
        self.step_number += 1
        self._process(self._nothing())
        self._leave({"event": "EXPERIMENT_FAILURE", "step": self.step_number, "reason": "WORKER_LOST"})

    @_never_breaks(None)
    def _leave(self, terminal: Event | None) -> None:
        self._recorder.write_notes(self.step_number + 1)
        if terminal is not None and self._started:
            self._recorder.end(terminal)
        self._release()

    def _release(self) -> None:
        """Give back hooks, threads and files, whatever state the monitor is in."""
        self.enabled = False
        for part in (self._repairs, *self._spreads, self._attention, self._mechanism, self._own_watch, self._recorder):
            try:
                if part is not None:
                    part.close()
            except Exception as error:  # noqa: BLE001 - the other parts are to be given back as well
                LOGGER.warning("while the monitor was closed: %s", error)

    def _disable(self, error: Exception) -> None:
        LOGGER.warning(
            "the monitor stops at step %d, training goes on: %s: %s",
            self.step_number, type(error).__name__, error, exc_info=LOGGER.isEnabledFor(logging.DEBUG),
        )  # fmt: skip
        self._release()

    # -- a step -------------------------------------------------------------------------------------------------------

    def _computed(self, loss: Tensor | float) -> StepComputation:
        """What the computation of a step has left with those who watched it; they begin anew. Waits for nothing."""
        present, norms = self._gradients.measure()
        parts, source = self._collect()
        attention = self._attention.collect() if self._attention else None
        return StepComputation(torch.as_tensor(loss), present, norms, parts, source, attention)

    def _measure(self, computation: StepComputation) -> _Pending:
        """Put the numbers of this step on their way to the host; waits for nothing."""
        scalars = {
            "training_loss": computation.loss,
            "update_rms": self._update.measure(),
            "attention_logit_max": computation.attention_logit,
        }
        validation, self._validation = self._validation, []
        rate = float(self._optimizer.param_groups[0]["lr"])
        transfer = DeviceTransfer(computation.gradients, computation.norms, computation.parts, scalars)
        inside = self._mechanism.step(self.step_number) if self._mechanism else None
        return _Pending(self.step_number, transfer, rate, self._step_time_s(), computation.spread, validation, inside)

    def _nothing(self) -> _Pending:
        """A step of which nothing was measured."""
        return _Pending(self.step_number, DeviceTransfer([], None, None, {}), math.nan, self._step_time_s(), "", [])

    def _step_time_s(self) -> float:
        """Seconds since the step before; NaN in the first one of this process."""
        before_s, self._before_s = self._before_s, self._clock()
        return self._before_s - before_s

    def _collect(self) -> tuple[Tensor | None, str]:
        """Gradient norms of the parts from the best source that has them, and its name; every source is asked."""
        found = [(spread.collect(), spread.name) for spread in self._spreads]
        parts, name = next(((parts, name) for parts, name in found if parts is not None), (None, ""))
        # The parts were measured before the gradients were unscaled; get_scale() would wait for the device.
        scale = self._scaler._get_scale_async() if self._scaler is not None else None
        return parts / scale.to(parts.device) if parts is not None and scale is not None else parts, name

    @_never_breaks(None)
    def _process_pending(self) -> Detections | None:
        pending, self._pending = self._pending, None
        return None if pending is None else self._process(pending)

    def _process(self, pending: _Pending) -> Detections:
        """Look at the numbers of a step: estimate, score, log, warn."""
        numbers = pending.transfer.read()
        inside = None if pending.mechanism is None else pending.mechanism.read()
        reports = self._hardware(pending.step_time_s)
        for _ in reports:
            self._estimators.hardware_event()
        for loss in pending.validation:
            self._estimators.validation(loss)
        observation = self.last = self._estimators.observe(
            pending.step,
            numbers,
            learning_rate=pending.learning_rate,
            step_time_s=pending.step_time_s,
            spread=pending.spread,
            evaluated=bool(pending.validation),
            workers_with_events=[report.worker for report in reports if report.component not in SLOW_STEPS],
            mechanism=inside.values if inside else {},
        )
        verdict = self._panel.update(observation, numbers, inside.worst if inside else {})
        if not math.isinf(observation["training_loss"]):
            self._non_finite_since = None
        elif self._non_finite_since is None:
            self._non_finite_since = pending.step
        self._recorder.step(
            observation,
            verdict,
            numbers,
            reports,
            elapsed_s=self._estimators.elapsed_s,
            sources=self._estimators.sources,
            noise_scale=self._estimators.noise_scale,
            alerts=self._panel.first,
            details=inside.events if inside else (),
        )
        self._tell(verdict)
        self._above = verdict.above
        return verdict

    def _hardware(self, step_time_s: float) -> list[HardwareReport]:
        """Hardware events since the step before."""
        reports, self._reports = self._reports, []
        slow = self._step_times.update(step_time_s)
        if slow is not None:
            reports.append(slow)
        if self._watch is None:
            return reports
        for note in self._watch.notes():
            LOGGER.warning("%s", note)
        return reports + self._watch.drain()

    def _tell(self, verdict: Detections) -> None:
        """Call the user; an error of theirs is theirs, and the monitor goes on without them."""
        if self._on_alert is None or not verdict.alerts:
            return
        try:
            for alert in verdict.alerts:
                self._on_alert(alert)
        except Exception as error:  # noqa: BLE001 - whatever a callback does, training goes on
            self._on_alert = None
            LOGGER.warning("on_alert raised %s: %s; it is not called again", type(error).__name__, error)

    def _repairs_of(self, policy: Policy | Iterable[Policy], model: nn.Module, vocabulary: int | None) -> PolicyRunner:
        return PolicyRunner(
            policy,
            model=model,
            optimizer=self._optimizer,
            scaler=self._scaler,
            measure=self._computed,
            note=self.note,
            vocabulary=vocabulary,
            processes=self._processes,
        )

    def _agreed(self, proceed: bool) -> bool:
        """What all processes decide: none of them may step alone."""
        if self._processes == 1:
            return proceed
        vote = torch.tensor(float(proceed), device=self._gradients.device)
        dist.all_reduce(vote, dist.ReduceOp.MIN)
        return bool(vote.item())

    # -- checkpoints --------------------------------------------------------------------------------------------------

    @property
    def _history(self) -> list[Any]:
        return [self._estimators, self._panel, self._step_times, self._non_finite_since]

    def state_dict(self) -> dict[str, Any]:
        """All that the scores to come depend on: plain values and tensors. Looks at the pending step first.

        Empty if the monitor does not watch any longer, or if a detector's state cannot be told in plain values.
        """
        return dict(self._state())

    @_never_breaks({})
    def _state(self) -> dict[str, Any]:
        self._process_pending()
        self._before_s = math.nan  # a checkpoint is no part of a step's time
        return {
            "step": self.step_number,
            "history": state_of(self._history),
            "update": self._update.state_dict(),
            "validation": list(self._validation),
            "recorder": self._recorder.state_dict(),
            **({} if self._repairs is None else {"repairs": self._repairs.state_dict()}),
            **({} if self._mechanism is None else {"mechanism": self._mechanism.state_dict()}),
        }

    @_never_breaks(None)
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; before the first :meth:`step`. The log goes on where the checkpoint was taken.

        The detectors and their settings must be those of the run that is resumed; otherwise the monitor says so and
        disables itself. An empty state is that of a new run.
        """
        if not state:
            return
        self._non_finite_since = restore(self._history, state["history"])[-1]
        for spread in self._spreads:
            if self._estimators.sources["sigma_sq"] == spread.name:
                spread.start_measuring()
        self._update.load_state_dict(state["update"])
        self._validation = list(state["validation"])
        self._recorder.load_state_dict(state["recorder"])
        if self._repairs is not None and "repairs" in state:
            self._repairs.load_state_dict(state["repairs"])
        if self._mechanism is not None and "mechanism" in state:
            self._mechanism.load_state_dict(state["mechanism"], state["step"])
        self.step_number, self._resumed = state["step"], True


@dataclass
class _Pending:
    """A step whose numbers are on their way."""

    step: int
    transfer: DeviceTransfer
    learning_rate: float
    step_time_s: float
    spread: str
    """Where the norms of the parts come from."""
    validation: list[float]
    """Validation losses that were told of since the step before."""
    mechanism: PendingMeasurement | None = None
    """What the mechanism monitors found, if it is their step."""


def _attention_logits(model: nn.Module) -> AttentionLogits:
    from rmetric.monitor.measures import AttentionLogits

    return AttentionLogits(model)


def _mechanism_watch(
    model: nn.Module, optimizer: torch.optim.Optimizer, asked: MechanismWatch | MonitorSelection
) -> MechanismWatch:
    from rmetric.monitor.mechanism import MechanismWatch  # needs transformers, and most runs do not ask

    return MechanismWatch.of(model, optimizer, asked)
