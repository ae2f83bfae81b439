"""A run that is watched: its steps, its end, and its state for a checkpoint."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, SupportsFloat

from rmetric.errors import LOGGER, on_one_line
from rmetric.monitor.arguments import check_state, hardware_report
from rmetric.monitor.ending import AtExit, Closable, Failure, close_all, ended, failed
from rmetric.monitor.guard import never_raises
from rmetric.monitor.measurer import Measurer
from rmetric.monitor.notes import planned_change
from rmetric.monitor.pending_step import PendingStep, unmeasured_step
from rmetric.monitor.pipeline import StepPipeline
from rmetric.monitor.processes import Processes
from rmetric.monitor.record_interval import RecordInterval
from rmetric.monitor.recorder import Recorder
from rmetric.monitor.remarks import ANNOUNCED_TOO_OFTEN, EMPTY_STATE, WORDS, Remarks
from rmetric.monitor.since_record import SinceRecord
from rmetric.monitor.state_watch import StateWatch
from rmetric.monitor.step_clock import StepClock
from rmetric.monitor.worker_lost import LastWords, WorkerLost
from rmetric.records import SUCCESS, WORKER_LOST, Event
from rmetric.robust.context import Announcements
from rmetric.state import restore, state_of
from rmetric.verdict import CALL_ORDER

if TYPE_CHECKING:  # a loop without torch has none of these
    from rmetric.monitor.answers import AnswerWatch
    from rmetric.monitor.repair.context import Recompute
    from rmetric.monitor.repair.runner import PolicyRunner
    from rmetric.monitor.votes import Votes


@dataclass(kw_only=True, eq=False)
class RunWatch:
    """Watches a run with the parts that it is given. None of them refers to it, so that who lets go of it ends it."""

    processes: Processes
    interval: RecordInterval
    clock: StepClock
    recorder: Recorder
    measurer: Measurer
    pipeline: StepPipeline
    order: Remarks
    policies: PolicyRunner | None
    answers: AnswerWatch | None
    """``None``: every update is made, and no step is waited for."""
    votes: Votes | None
    """Whether to make an update; ``None``: no process vetoes one."""
    others: Sequence[Closable | None]
    """Further parts, which do their work alone until they are closed."""
    enabled: bool = True
    step_number: int = 0
    _since: SinceRecord = field(default_factory=SinceRecord)
    _announcements: Announcements = field(default_factory=Announcements)
    _states: StateWatch = field(default_factory=StateWatch)
    _pending: PendingStep | None = None
    _at_end: Mapping[str, Any] = field(default_factory=dict)
    """State before the end."""
    _started: bool = False
    _resumed: bool = False
    _closed: bool = False

    def __post_init__(self) -> None:
        several = self.processes.count > 1
        self._last_words = LastWords(self._end_with_lost_worker) if several and self.processes.first else None
        # Where there are peers, what waits asks them, and they may be gone.
        self._at_exit = None if several else AtExit(self.detach)

    # -- a step -------------------------------------------------------------------------------------------------------

    def step(self, loss: SupportsFloat, recompute: Recompute | None = None, number: int | None = None) -> bool:
        """Watch one step, the next or that of this number; return whether to go on with its update.

        Raises ``TrainingStopped``, the verdict of a policy, on which the monitor is to be closed.
        """
        if self._closed:
            self.order.tell("closed")
        if not self.enabled:
            self.step_number += 1  # the others' records go by it
        proceed: bool = self._step(loss, recompute, number)
        if not self.enabled:  # also if it has just failed
            self.measurer.keep_pace(self.step_number)
            if self.policies is not None and self.policies.asked_in != self.step_number:  # else in the next step
                self.policies.withdraw()
        if self.votes is not None:
            proceed = self.votes.all_agree(proceed)
        if self.answers is not None and self.answers.given(proceed):
            self.measurer.forget_update()  # an update that is left out has no size, not one of 0
        return proceed

    @never_raises(True)
    def _step(self, loss: SupportsFloat, recompute: Recompute | None, number: int | None) -> bool:
        try:
            self._start()
        finally:
            self.step_number = self.step_number + 1 if number is None else number
        proceed = True
        if self.interval.due(self.step_number):
            with self.interval.timed(self.step_number):
                proceed = self._record(loss, recompute)
            self._choose_interval()
        else:  # most of a monitor's cost is here where records come seldom
            self._rest(loss)
        for what in self.order.taken():
            wrong = {"event": CALL_ORDER, "step": self.step_number, "wrong": what, "details": WORDS[what]}
            self.recorder.note(wrong)
        return proceed

    def _start(self) -> None:
        """Begin the log, or go on in it, once; evaluations of this very step come first: what goes on has lost them."""
        if self._started:
            return
        self._started = True
        self.recorder.start(self.step_number if self._resumed else None)
        for step, loss in self._since.validation:
            if step == self.step_number:
                self.recorder.validation(step, loss)

    def _record(self, loss: SupportsFloat, recompute: Recompute | None) -> bool:
        self._since.loss = None
        computation, proceed = self.measurer.computation(self.step_number, loss), True
        if computation.loss is None:
            self.order.tell("no loss")
        self.order.step()
        if self.policies is not None and computation.loss is not None:
            computation, proceed = self._repaired(self.policies, computation, recompute)
        previous, self._pending = self._pending, self._measure(computation)
        if self.policies is not None:
            self._pending.rate_factor = self.policies.rate_factor
        if self.policies is not None and self.policies.went_back(self.step_number):
            self.announce("the monitor went back to an earlier state", self.step_number + 1)
        self._process(previous)
        if self.answers is None:
            return True
        self._process_pending()
        if self.policies is not None:
            self.policies.raise_if_stopped()
        return proceed and not (self.votes is not None and self.enabled and self.pipeline.vetoes_update)

    def _repaired(self, policies: PolicyRunner, computation: Any, recompute: Recompute | None) -> tuple[Any, bool]:
        """What the update is to be made from, and whether to make it, as the policies say."""
        policies.enabled &= self.answers is None or not self.answers.too_late
        recompute = None if recompute is None else self.measurer.restarting(recompute)
        before, seen = self.pipeline.exceeded, self.pipeline.last
        decided = policies.before_update(self.step_number, computation, recompute, before, seen)
        if self.answers is not None and self.votes is None and not policies.enabled:
            self.answers.close()
        return decided

    def _measure(self, computation: Any) -> PendingStep:
        change = self.measurer.changed_batches()
        if change and (self.processes.count == 1 or self.answers is None):
            self.announce(change, self.step_number)  # processes that act together must all know the same
        since, self._since = self._since, SinceRecord()
        return self.measurer.measure(self.step_number, computation, self._step_time_s(), since)

    def _step_time_s(self) -> float:
        """End a step that has a record; the time of those since the last one."""
        self.clock.tick()
        seconds = self.clock.read()
        self.interval.step_took(seconds)
        return seconds

    def _choose_interval(self) -> None:
        """Choose, as soon as it can be done, how many steps lie between records."""
        if self.interval.choose():
            self.pipeline.stand_for_more_steps(self.interval.records_per_sigma_sq)
            interval = {"event": "RECORD_INTERVAL", "step": self.step_number + 1, "steps": self.interval.steps}
            self.recorder.note(interval)

    def _rest(self, loss: SupportsFloat) -> None:
        self._since.loss = self.measurer.usable(loss)
        self.order.step()
        self.clock.tick()
        self.measurer.rest(self.step_number)
        if self._pending is not None:
            self._process_pending()

    @never_raises(None)
    def _process_pending(self) -> None:
        pending, self._pending = self._pending, None
        self._process(pending)

    def _process(self, pending: PendingStep | None) -> None:
        if pending is None:
            return
        observation = self.pipeline.process(pending, gradients_cleared=self.order.gradients_cleared)
        self.order.record(observation)
        if self.pipeline.updated_elsewhere and self.processes.first:
            self.order.count("optimizer replaced")
        if self._announcements.update(announced=observation.announced) and self.processes.first:
            self.order.tell(ANNOUNCED_TOO_OFTEN)
        if self.processes.first and self._states.is_due(self.pipeline.estimators.elapsed_s):
            with StepClock.all_paused():
                self._tell_states(observation.step)

    @never_raises(None, ends=False)
    def _tell_states(self, step: int, **marks: bool) -> None:
        """Look at what states the run is in; ``at_end=True``: lines that a run that is resumed writes again."""
        for event in self._states.look(step, self.pipeline.seen):
            self.recorder.now({**event, **marks})

    # -- what the training loop tells ---------------------------------------------------------------------------------

    def validation(self, loss: SupportsFloat) -> None:
        self.clock.leave_out()  # an evaluation is no part of a step's time
        usable = self._usable(loss)
        if usable is None:
            return
        if self._resumed:
            self._start()
        found = float(usable)
        self._since.validation.append((self.step_number, found))
        if self._started:
            self._process_pending()  # nothing waits: an evaluation has waited for the device
            self.recorder.validation(self.step_number, found)
        self.pipeline.note_evaluation(self.step_number, found)

    def reward(self, reward: SupportsFloat) -> None:
        if (usable := self._usable(reward)) is not None:
            self._since.rewards.append(float(usable))

    def _usable(self, number: Any) -> Any:
        """A number that the loop gives; ``None``, which is told, if it is not one real number."""
        found = self.measurer.usable(number)
        if found is None:
            self.order.tell("no loss")
        return found

    def announce(self, what: str, step: int) -> None:
        """Take in a change of the training that is made on purpose in a step."""
        self.recorder.note(planned_change(what, step))
        self._since.planned_changes += 1

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self, failure: Failure | None = None) -> None:
        self._settle()
        self._closed = True
        self._end(failure)

    def detach(self) -> None:
        self._settle()
        self._judge_rest()
        self._leave(None)

    def ended_with_lost_worker(self, error: BaseException) -> bool:
        """End if what ended the training means that a peer died; return whether it does."""
        lost = self._means_lost_worker(error)
        if lost:
            self._end_with_lost_worker(error)
        return lost

    def __del__(self) -> None:
        """Lose nothing of a run that nobody refers to any more: what :class:`AtExit` does for one that is there."""
        if self._at_exit is not None and self._at_exit.due:
            self.detach()

    @never_raises(None)
    def _end(self, failure: Failure | None) -> None:
        if self._resumed:  # what had reached its end has one again
            self._start()
        self._judge_rest()
        self._leave(ended(self.step_number, failure, self.pipeline.non_finite_since))

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
        finite = self.pipeline.non_finite_since is None
        if since.loss is not None and math.isfinite(since.loss) != finite:
            evaluations = SinceRecord(validation=since.validation)
            self.pipeline.process(unmeasured_step(self.step_number, math.nan, evaluations, float(since.loss)))
        elif self._started and since.validation:
            self.pipeline.judge_last_evaluation(*since.validation[-1])

    def _means_lost_worker(self, error: BaseException) -> bool:
        """Whether a peer died. One process has none: what its data loader says of a connection is no such sign."""
        return isinstance(error, WorkerLost) or (self.processes.count > 1 and WorkerLost.caused(error))

    @never_raises(None)
    def _end_with_lost_worker(self, error: BaseException) -> None:
        """Record the death of a peer: the event counts for λ in one more record, and the run has failed."""
        self._settle()
        worker = WorkerLost.worker_of(error, self.processes)
        details = f"{type(error).__name__} in the step after {self.step_number}"
        self.pipeline.reports.append(hardware_report("worker", "fatal", worker, details))
        self._start()
        self.step_number += 1
        self.pipeline.process(unmeasured_step(self.step_number, self._step_time_s(), SinceRecord()))
        self._leave(failed(self.step_number, WORKER_LOST))

    @never_raises(None)
    def _leave(self, terminal: Event | None) -> None:
        if self._started:  # a run without a step leaves no log
            self.recorder.write_notes()
        if terminal is not None and self._started:
            if self.processes.first and terminal["event"] == SUCCESS:
                self._tell_states(self.step_number, at_end=True)
            self.recorder.now(terminal)
        self._release()

    def _release(self) -> None:
        """Give back hooks, threads and files, whatever state the run is in."""
        self.enabled = False
        watches = (self.order, self.answers, *self.others, self._last_words, self._at_exit)
        close_all((self.policies, self.measurer, *watches, self.recorder))

    def disable(self, error: Exception) -> None:
        """End because of an error inside, with one warning; training goes on.

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
        self.order.tell(on_one_line(error))

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        return dict(self._state() if self.enabled else self._at_end)

    @never_raises({})
    def _state(self) -> dict[str, Any]:
        self._process_pending()
        self.clock.leave_out()  # a checkpoint is no part of a step's time
        return self._present_state()

    def _present_state(self) -> dict[str, Any]:
        if self._started:  # a note that waits for its record would be in the state and, at this step, in the log
            self.recorder.write_notes(self.step_number)
        return {
            "step": self.step_number,
            "record_every": self.interval.steps,
            "record_every_chosen": self.interval.chosen,
            **self._since.state_dict(),
            "recorder": self.recorder.state_dict(),
            "states": state_of(self._states),
            "announcements": state_of(self._announcements),
            **self.pipeline.state_dict(),
            **self.measurer.state_dict(),
            **({} if self.policies is None else {"repairs": self.policies.state_dict()}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        check_state(state)
        if self._started:
            self.order.tell("resumed late")
        elif state:
            self._load(state)
        else:
            self.order.tell(EMPTY_STATE)

    @never_raises(None)
    def _load(self, state: Mapping[str, Any]) -> None:
        self.step_number = state["step"]  # an error tells of it
        if self.interval.open and (state["record_every"] > 1 or state.get("record_every_chosen")):
            self.interval.fix(state["record_every"])
            self.pipeline.stand_for_more_steps(self.interval.records_per_sigma_sq)
        self.pipeline.load_state_dict(state)
        self.measurer.load_state_dict(state, state["step"], self.pipeline.estimators.sources["sigma_sq"])
        self._since.load_state_dict(state)
        self.recorder.load_state_dict(state["recorder"])
        restore(self._states, state["states"])
        restore(self._announcements, state["announcements"])
        if self.policies is not None and "repairs" in state:
            self.policies.load_state_dict(state["repairs"])
        self._resumed = True
