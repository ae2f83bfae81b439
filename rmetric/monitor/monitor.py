"""The monitor of a training run: two lines in anybody's training loop."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor, nn

from rmetric.detectors import DEFAULT_DETECTORS, StreamingDetector
from rmetric.errors import on_one_line
from rmetric.measurements import Observation
from rmetric.monitor.alerts import Alert
from rmetric.monitor.arguments import (
    check_number,
    check_optional,
    check_options,
    check_parameters,
    check_record_interval,
    check_state,
    check_trained,
    hardware_report,
    stepping_optimizer,
    usable_loss,
)
from rmetric.monitor.call_order import ANNOUNCED_TOO_OFTEN, EMPTY_STATE, WORDS
from rmetric.monitor.detector_set import DetectorSet
from rmetric.monitor.ending import AtExit, Failure, close_all, closed_on_error, ended, failed
from rmetric.monitor.guard import never_raises
from rmetric.monitor.hardware import HardwareWatch
from rmetric.monitor.measures import ENTRIES
from rmetric.monitor.notes import note_of, planned_change
from rmetric.monitor.parts import PartsFor
from rmetric.monitor.processes import Processes
from rmetric.monitor.ranks.hang_watch import HangWatch
from rmetric.monitor.ranks.phases import PhaseClock
from rmetric.monitor.record_interval import RecordInterval
from rmetric.monitor.recorder import vocabulary_of
from rmetric.monitor.repair.policy import Policy, checked_policies
from rmetric.monitor.repair.record import RepairRecord
from rmetric.monitor.since_record import SinceRecord
from rmetric.monitor.sinks import Sink
from rmetric.monitor.state_watch import StateWatch
from rmetric.monitor.step_clock import StepClock
from rmetric.monitor.step_measurer import PendingStep, unmeasured_step
from rmetric.monitor.transfer import StepComputation
from rmetric.monitor.waits import Waits, own_clock
from rmetric.monitor.worker_lost import LastWords, WorkerLost
from rmetric.records import SUCCESS, WORKER_LOST, Event, Observations
from rmetric.robust.context import Announcements
from rmetric.state import restore, state_of
from rmetric.verdict import CALL_ORDER

if TYPE_CHECKING:
    from rmetric.monitor.mechanism import MechanismWatch
    from rmetric.monitor.mechanism.watch import MonitorSelection

LOGGER = logging.getLogger("rmetric")


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
        The optimizer of the model; the largest learning rate of its parameter groups is logged.
    log
        Path of the JSONL log, written by the first process only; ``None``: none. An existing log is never overwritten.
    on_alert
        Called with an :class:`Alert` where an alert episode begins, in the first process only; once if several
        detectors see the same thing.
    announce
        Tell of alerts, repairs and the end of the run through ``logging`` (logger ``rmetric``).
    detectors
        Names or detectors that may raise an alert. The R-Metric in the paper's setting is logged in any case, but it
        alerts in every run, healthy or not (docs/FINDINGS.md); name ``r_metric`` to have its alerts as well.
    sync
        Wait for the numbers of a step before :meth:`step` returns, so that it can veto the update: where ``numerics``
        alerts, or a gradient is not finite. Otherwise they are looked at one step later and nothing waits for the
        device.
    config
        Further entries of the log's ``config``, such as ``seed``, ``model_type``, and ``experiment_id``, the name of
        the run; without it, sinks show the log's folder and name, or model and time. What the monitor knows itself,
        such as ``backend``, stays, with a warning.
    sinks
        Further destinations of the events.
    hardware
        A :class:`HardwareWatch`, which stays yours to close; ``None``: one over what the first process's machine has;
        ``True``: the same, with a warning about what is missing; ``False``: slow steps only.
    vocabulary
        Size of the vocabulary; ``None``: from ``model.config.vocab_size`` if the model has one.
    scaler
        A ``torch.amp.GradScaler``; call its ``unscale_(optimizer)`` before :meth:`step`. Up to 8 non-finite steps in a
        row are then its normal work.
    policy
        Repairs a step that looks wrong: a policy of :mod:`rmetric.monitor.repair`, or several in the order in which
        they are asked; ``None``: no repair. With a policy the numbers of a step are waited for, and no update is made
        from gradients that are not finite, whatever the policies say.
    attention_logits
        Also measure the largest attention logit (transformers models). Costs a second product of all queries and keys
        in each training pass, without a gradient.
    mechanism
        Also look inside the model every so many steps (docs/mechanism.md): ``"auto"``, names of monitors, or a
        :class:`~rmetric.monitor.mechanism.MechanismWatch`, which is closed with this monitor; ``None``: no. The first
        process looks.
    parameters
        Those of the model that are measured, as of one network of two that have an optimizer each; ``None``: all.
    update_entries
        Entries of the parameters whose change is measured, evenly spread; ``None``: all.
    record_every
        Steps between records, at least 1: those whose number is a multiple of it are measured, scored and logged, the
        steps between cost next to nothing. The last step has one too, of its loss alone, if that is not finite. Step
        times are means since the record before. Not with ``sync``, ``policy`` or ``mechanism``. ``"auto"``: a record of
        every step up to the 96th, then as many as keep the cost of watching below 0.5 % of a step; for a training in
        one process.
    sigma_sq_every
        Steps between measurements of σ² from micro-batches, at least 1, up to the next record; the records between
        keep the latest value.
    hang
        Say which process holds up the others, and where, when training does not go on (docs/ranks.md): ``True``,
        ``False``, or a :class:`~rmetric.monitor.HangWatch`; ``None``: where several processes train.
    clock
        Seconds, for step times; ``None``: :func:`time.perf_counter`, but for what the thread waits for a processor
        (:class:`~rmetric.monitor.waits.Waits`).

    Raises
    ------
    UserError
        For an argument of the wrong kind, a model with nothing to train, an unknown detector, a log that cannot be
        written at its path, or a distributed set-up that cannot be watched.
        After construction only :meth:`load_state_dict` raises.
    """

    _at_exit: AtExit | None = None
    """``None``: the monitor was never made, or has peers."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        log: str | PathLike[str] | None = None,
        on_alert: Callable[[Alert], object] | None = None,
        announce: bool = True,
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
        parameters: Iterable[nn.Parameter] | None = None,
        update_entries: int | None = ENTRIES,
        record_every: int | Literal["auto"] = 1,
        sigma_sq_every: int = 1,
        hang: HangWatch | bool | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        optimizer = stepping_optimizer(optimizer)
        check_trained(model, optimizer)
        parameters = check_parameters(parameters, model)
        check_options(on_alert=on_alert, detectors=detectors, config=config, sinks=sinks, scaler=scaler, clock=clock)
        check_optional(
            log=log, hang=hang, hardware=hardware, vocabulary=vocabulary, update_entries=update_entries,
            announce=announce, sync=sync, attention_logits=attention_logits,
        )  # fmt: skip
        check_number("sigma_sq_every", sigma_sq_every)
        policies, self._processes = checked_policies(policy), Processes.current()
        check_record_interval(
            record_every, self._processes.count, sync=sync, policy=policy is not None, mechanism=mechanism is not None
        )
        self._sync, self._interval = sync, RecordInterval(record_every, sigma_sq_every)
        self.enabled = True
        """True while it watches: until :meth:`close` or an error inside."""
        self.step_number = 0
        """Calls of :meth:`step` so far, those before a resume included."""
        self._since, self._announcements, self._states = SinceRecord(), Announcements(), StateWatch()
        self._pending: PendingStep | None = None
        self._at_end: dict[str, Any] = {}  # state before the end
        self._started = self._resumed = self._closed = False

        several, first = self._processes.count > 1, self._processes.first
        now = time.perf_counter if clock is None else clock
        vocabulary = vocabulary_of(model) if vocabulary is None else vocabulary
        scaler = scaler if scaler is not None and scaler.is_enabled() else None
        detector_set = DetectorSet(detectors, vocabulary)
        with closed_on_error() as made:
            # The phases of one process are compared with nobody's: only a watch for hangs asks for them.
            own_time = (own_clock() if clock is None else clock) if several else time.perf_counter
            phases = made(PhaseClock(model, optimizer, own_time) if several or hang else None)
            make = PartsFor(model, optimizer, scaler, vocabulary, self._processes, phases, self._interval, log)
            self._clock = StepClock(now, phases, Waits() if clock is None else float)
            self._recorder = make.recorder(detector_set, announce, sinks, config)
            inside = made(make.mechanism(mechanism))
            self._measurer = made(make.measurer(parameters, update_entries, attention_logits, inside))
            self._own_watch = made(make.own_watch(hardware))
            watch = hardware if isinstance(hardware, HardwareWatch) else self._own_watch
            self._pipeline = make.pipeline(detector_set, self._recorder, watch, on_alert)
            self._hangs = made(make.hang_watch(hang, self._recorder))
            self._last_words = made(LastWords(self._end_with_lost_worker) if several and first else None)
            self._order = made(make.call_order(self._measurer))
            self._votes = make.votes(self._measurer)
            self._policies = make.policies(policies, self._measurer, self._recorder, self._votes)
            self._answers = made(make.answers(self._order) if sync or policies else None)
        # Where there are peers, what waits asks them, and they may be gone.
        self._at_exit = None if several else AtExit(self.detach)

    @property
    def last(self) -> Observation | None:
        """The latest observation that was looked at."""
        return self._pipeline.last

    @property
    def alerts(self) -> dict[str, int]:
        """Detector → step of its first alert."""
        return dict(self._pipeline.detectors.first_alerts)

    @property
    def repairs(self) -> list[RepairRecord]:
        """Everything that the policies did, in the order of the steps."""
        return list(self._policies.log) if self._policies is not None else []

    # -- in the training loop -----------------------------------------------------------------------------------------

    def step(self, loss: Tensor | float, *, recompute: Callable[[], Tensor | float] | None = None) -> bool:
        """Watch one step: call it after ``backward``, before clipping and ``optimizer.step``.

        Parameters
        ----------
        loss
            Loss of the step, nats; a tensor stays on its device.
        recompute
            For a policy: zeroes the gradients, does once more what the training loop did for this step up to here
            (forward and backward passes of the same batch, all micro-batches; ``scaler.unscale_``), returns the loss.

        Returns
        -------
        bool
            Whether to go on with the update. Always ``True`` unless ``sync=True`` or a policy skips it.
        """
        if self._closed:
            self._order.tell("closed")
        if not self.enabled:
            if self._policies is not None:
                self._policies.withdraw()
            self.step_number += 1  # the others' records go by it
        proceed: bool = self._step(loss, recompute)
        if not self.enabled:  # also if it has just failed
            self._measurer.keep_pace(self.step_number)
        proceed = self._agreed(proceed) if self._sync else proceed
        if self._answers is not None and self._answers.given(proceed):
            self._measurer.update.forget()  # an update that is left out has no size, not one of 0
        return proceed

    def _agreed(self, proceed: bool) -> bool:
        """Whether all processes say yes: each takes part, whatever has become of its monitor."""
        try:
            return self._votes.all_agree(proceed)
        except RuntimeError:  # a peer has died: training learns of it at its next collective
            return True

    @never_raises(True)
    def _step(self, loss: Tensor | float, recompute: Callable[[], Tensor | float] | None) -> bool:
        try:
            self._start()
        finally:
            self.step_number += 1
        if self._interval.due(self.step_number):
            with self._interval.timed(self.step_number):
                proceed = self._record(loss, recompute)
            self._choose_interval()
        else:  # most of a monitor's cost is here where records come seldom
            proceed = True
            self._rest(loss)
        for what in self._order.taken():
            wrong = {"event": CALL_ORDER, "step": self.step_number, "wrong": what, "details": WORDS[what]}
            self._recorder.note(wrong)
        return proceed

    def _record(self, loss: Tensor | float, recompute: Callable[[], Tensor | float] | None) -> bool:
        """Watch a step that has a record."""
        self._since.loss = None
        computation, proceed = self._measurer.computation(self.step_number, self._order.usable(loss)), True
        self._order.step()
        if self._policies is not None and computation.loss is not None:
            self._policies.enabled &= self._answers is None or not self._answers.too_late
            recompute = self._measurer.restarting(recompute) if recompute else None
            computation, proceed = self._policies.before_update(
                self.step_number, computation, recompute, self._pipeline.exceeded, self._pipeline.last
            )
            if self._answers is not None and not (self._sync or self._policies.enabled):
                self._answers.close()
        previous, self._pending = self._pending, self._measure(computation)
        if self._policies is not None and self._policies.went_back(self.step_number):
            self._announce("the monitor went back to an earlier state", self.step_number + 1)
        self._process(previous)
        if not self._sync and self._policies is None:
            return True
        self._process_pending()
        if self._policies is not None:
            self._policies.end_if_stopped(self.close)
        return proceed and not (self._sync and self.enabled and self._pipeline.vetoes_update)

    def _choose_interval(self) -> None:
        """Choose, as soon as it can be done, how many steps lie between records."""
        if self._interval.choose():
            self._keep_interval()
            interval = {"event": "RECORD_INTERVAL", "step": self.step_number + 1, "steps": self._interval.steps}
            self._recorder.note(interval)

    def _keep_interval(self) -> None:
        """Let all that a record stands for follow the interval between records."""
        self._measurer.stand_for(self._interval.steps, self._interval.steps_per_sigma_sq)
        self._pipeline.stand_for(self._interval.steps, self._interval.records_per_sigma_sq)

    def _rest(self, loss: Tensor | float) -> None:
        """Pass by a step between two records."""
        self._since.loss = loss.detach() if isinstance(loss, Tensor) else loss
        self._order.step()
        self._clock.tick()
        self._measurer.rest(self.step_number)
        if self._pending is not None:
            self._process_pending()

    @never_raises(None)
    def validation(self, loss: Tensor | float) -> None:
        """Report a validation loss, nats: that of the model after the latest step.

        The log has it at that step; detectors see it in the next record, or at the end one that is not finite. It is
        taken for a loss, of which less is better: of an accuracy, report 1 minus it.
        """
        self._clock.leave_out()  # an evaluation is no part of a step's time
        usable = self._order.usable(loss)
        if usable is None:
            return
        if self._resumed:
            self._start()
        found = float(usable.detach())
        self._since.validation.append((self.step_number, found))
        if self._started:
            self._process_pending()  # nothing waits: an evaluation has waited for the device
            self._recorder.validation(self.step_number, found)
        self._pipeline.note_evaluation(self.step_number, found)

    @never_raises(None, ends=False)
    def reward(self, reward: Tensor | float) -> None:
        """Report the reward of an agent's episode, or a mean of some; more is better.

        The next record has the mean of those reported since the record before. A loss that rises with the reward, or
        that stands still meanwhile, is then no sign of a run that got worse or never learns.
        """
        if (usable := self._order.usable(reward)) is not None:
            self._since.rewards.append(float(usable.detach()))

    @never_raises(None, ends=False)
    def hardware_event(self, component: str, *, kind: str = "correctable", worker: int = 0, details: str = "") -> None:
        """Report a hardware event that something else saw (a cluster manager); it counts for λ.

        ``kind`` is ``correctable``, or ``fatal``: that worker is lost.
        """
        self._pipeline.reports.append(hardware_report(component, kind, worker, details))

    @never_raises(None, ends=False)
    def note(self, event: str, *, step: int | None = None, **fields: Any) -> None:
        """Add a line of your own to the log, at the current step unless ``step`` is given.

        What JSON has no form for (a tensor of several numbers, a path) is written as text.
        """
        self._recorder.note(note_of(event, self.step_number + 1 if step is None else step, fields))

    @never_raises(None, ends=False)
    def planned(self, what: str) -> None:
        """Announce a change of the training, made on purpose and right before the next step, in your words.

        Another task, other data, layers that are drawn anew: from its numbers alone a change that is meant cannot be
        told from one that is not. The robust R-Metric learns anew what is usual, and no change of a setting in that
        step alerts. Until it has learned (17 records for a loss that is lost again, 32 to 104 for all else) it sees
        less: what comes every few steps is the way of a run, and not to be announced. Where several processes train,
        call it in each of them.
        """
        self._announce(what, self.step_number + 1)

    def paused(self) -> AbstractContextManager[None]:
        """Exclude what is done in this context (an evaluation of your own, a snapshot) from the step time."""
        return self._clock.paused()

    @property
    def seconds_into_step(self) -> float:
        """Seconds since the last :meth:`step`; NaN before the first, and after a validation or a checkpoint."""
        return self._clock.seconds

    def continue_step(self, seconds: float) -> None:
        """Let the current step be that old already: for a fork, which goes on in the middle of its twin."""
        self._clock.seconds = seconds

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self, failure: Failure | None = None) -> None:
        """End the log properly and remove every hook. May be called twice.

        The last line says how the run ended: as ``failure`` has it; else NAN_LOSS if the loss was not finite to the
        end; else success. A run that is left through an exception has no such line: it is incomplete. The monitor
        goes on to refer to the model; to free its memory, let go of both.
        """
        self._settle()
        self._closed = True
        self._end(failure)

    @never_raises(None)
    def _end(self, failure: Failure | None) -> None:
        if self._resumed:  # what had reached its end has one again
            self._start()
        self._judge_rest()
        self._leave(ended(self.step_number, failure, self._pipeline.non_finite_since))

    def _settle(self) -> None:
        """Look at the pending step, and keep the state for a training that goes on later."""
        self._process_pending()
        if self.enabled:
            with suppress(Exception):  # nobody has asked for it yet
                self._at_end = self._present_state()

    @never_raises(None)
    def _judge_rest(self) -> None:
        """Judge what no record has: whether the last loss is finite, if the record before says otherwise, or else the
        last evaluation.
        """
        since, self._since = self._since, SinceRecord()
        loss, finite = usable_loss(since.loss), self._pipeline.non_finite_since is None
        if loss is not None and math.isfinite(loss.item()) != finite:
            self._pipeline.process(unmeasured_step(self.step_number, math.nan, loss, since.validation_losses))
        elif self._started and since.validation:
            self._pipeline.judge_last_evaluation(*since.validation[-1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif self._means_lost_worker(error):
            self._end_with_lost_worker(error)
        else:
            self.detach()

    def __del__(self) -> None:
        """Lose nothing of a monitor that nobody refers to any more: what :class:`AtExit` does for one that is there.

        No part of a monitor refers to it, so that this is at once; not one that was never made.
        """
        if self._at_exit is not None and self._at_exit.due:
            self.detach()

    def detach(self) -> None:
        """Stop watching and remove every hook; the log is left without an end, which the caller writes."""
        self._settle()
        self._judge_rest()
        self._leave(None)

    def _means_lost_worker(self, error: BaseException) -> bool:
        """Whether a peer died. One process has none: what its data loader says of a connection is no such sign."""
        return isinstance(error, WorkerLost) or (self._processes.count > 1 and WorkerLost.caused(error))

    @never_raises(None)
    def _end_with_lost_worker(self, error: BaseException) -> None:
        """Record the death of a peer: the event counts for λ in one more record, and the run has failed."""
        self._settle()
        worker = WorkerLost.worker_of(error, self._processes)
        details = f"{type(error).__name__} in the step after {self.step_number}"
        self.hardware_event("worker", kind="fatal", worker=worker, details=details)
        self._start()
        self.step_number += 1
        self._pipeline.process(unmeasured_step(self.step_number, self._step_time_s()))
        self._leave(failed(self.step_number, WORKER_LOST))

    @never_raises(None, ends=False)
    def _tell_states(self, step: int, told: Callable[[int, Observations | None], list[Event]]) -> None:
        """Look at what states the run is in, and write what is to be told of them."""
        for event in told(step, self._pipeline.seen):
            self._recorder.now(event)

    @never_raises(None)
    def _leave(self, terminal: Event | None) -> None:
        self._recorder.write_notes()
        if terminal is not None and self._started:
            if self._processes.first and terminal["event"] == SUCCESS:
                self._tell_states(self.step_number, self._states.end)
            self._recorder.end(terminal)
        self._release()

    def _release(self) -> None:
        """Give back hooks, threads and files, whatever state the monitor is in."""
        self.enabled = False
        watches = (self._order, self._answers, self._hangs, self._own_watch, self._last_words, self._at_exit)
        close_all((self._policies, self._measurer, *watches, self._recorder))

    def disable(self, error: Exception) -> None:
        """End the monitor because of an error inside, with one warning; training goes on.

        Not for the death of a peer, which a collective of the monitor may be the first to see: training learns of it at
        its own next collective, and the log is to say so.
        """
        if self._means_lost_worker(error):
            return
        LOGGER.warning(
            "the monitor stops at step %d, training goes on: %s",
            self.step_number, on_one_line(error), exc_info=LOGGER.isEnabledFor(logging.DEBUG),
        )  # fmt: skip
        self._release()

    def pass_by(self, error: Exception) -> None:
        """Report, once, that a call is ignored because of its arguments."""
        self._order.tell(on_one_line(error))

    # -- a step -------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Begin the log, or go on in it, once; evaluations of this very step come first: what goes on has lost them."""
        if self._started:
            return
        self._started = True
        self._recorder.start(self.step_number if self._resumed else None)
        for step, loss in self._since.validation:
            if step == self.step_number:
                self._recorder.validation(step, loss)

    def _announce(self, what: str, step: int) -> None:
        self._recorder.note(planned_change(what, step))
        self._since.planned_changes += 1

    def _measure(self, computation: StepComputation) -> PendingStep:
        change = self._measurer.changed_batches()
        if change and (self._processes.count == 1 or not (self._sync or self._policies)):
            self._announce(change, self.step_number)  # processes that act together must all know the same
        since, self._since = self._since, SinceRecord()
        return self._measurer.measure(
            self.step_number,
            computation,
            step_time_s=self._step_time_s(),
            validation=since.validation_losses,
            reward=since.reward,
            planned_changes=since.planned_changes,
        )

    def _step_time_s(self) -> float:
        """End a step that has a record; the time of those since the last one."""
        self._clock.tick()
        seconds = self._clock.read()
        self._interval.step_took(seconds)
        return seconds

    @never_raises(None)
    def _process_pending(self) -> None:
        pending, self._pending = self._pending, None
        self._process(pending)

    def _process(self, pending: PendingStep | None) -> None:
        if pending is None:
            return
        observation = self._pipeline.process(pending, gradients_cleared=self._order.gradients_cleared)
        self._order.record(observation)
        if self._pipeline.updated_elsewhere and self._processes.first:
            self._order.count("optimizer replaced")
        if self._announcements.update(announced=observation.announced) and self._processes.first:
            self._order.tell(ANNOUNCED_TOO_OFTEN)
        if self._processes.first and self._states.is_due(self._pipeline.estimators.elapsed_s):
            with StepClock.all_paused():
                self._tell_states(observation.step, self._states.look)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State that all later scores depend on: plain values and tensors. Looks at the pending step first.

        After :meth:`close`, that of the last step, from which a later training goes on, in the same log. Empty if an
        error has stopped the monitor, or if a detector's state cannot be told in plain values.
        """
        return dict(self._state() if self.enabled else self._at_end)

    @never_raises({})
    def _state(self) -> dict[str, Any]:
        self._process_pending()
        self._clock.leave_out()  # a checkpoint is no part of a step's time
        return self._present_state()

    def _present_state(self) -> dict[str, Any]:
        if self._started:  # a note that waits for its record would be in the state and, at this step, in the log
            self._recorder.write_notes(self.step_number)
        return {
            "step": self.step_number,
            "record_every": self._interval.steps,
            "record_every_chosen": self._interval.chosen,
            **self._since.state_dict(),
            "recorder": self._recorder.state_dict(),
            "states": state_of(self._states),
            "announcements": state_of(self._announcements),
            **self._pipeline.state_dict(),
            **self._measurer.state_dict(),
            **({} if self._policies is None else {"repairs": self._policies.state_dict()}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; before the first :meth:`step`. The log goes on where the checkpoint was taken.

        The detectors and their settings must be those of the run that is resumed; otherwise the monitor says so and
        disables itself. With an empty state a new run begins, and after the first step a state is passed by: both with
        a warning.

        Raises
        ------
        UserError
            For what :meth:`state_dict` has not returned, such as a checkpoint that holds it.
        """
        check_state(state)
        if self._started:
            self._order.tell("resumed late")
        elif state:
            self._load(state)
        else:
            self._order.tell(EMPTY_STATE)

    @never_raises(None)
    def _load(self, state: Mapping[str, Any]) -> None:
        self.step_number = state["step"]  # an error tells of it
        if self._interval.open and (state["record_every"] > 1 or state.get("record_every_chosen")):
            self._interval.fix(state["record_every"])
            self._keep_interval()
        self._pipeline.load_state_dict(state)
        self._measurer.load_state_dict(state, state["step"], self._pipeline.estimators.sources["sigma_sq"])
        self._since.load_state_dict(state)
        self._recorder.load_state_dict(state["recorder"])
        restore(self._states, state["states"])
        restore(self._announcements, state["announcements"])
        if self._policies is not None and "repairs" in state:
            self._policies.load_state_dict(state["repairs"])
        self._resumed = True
