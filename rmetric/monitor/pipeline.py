"""The host's side of a step: its numbers become an observation, scores, log records and alerts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from rmetric.advice import CUT_OFF
from rmetric.detectors.numerics import OF_THE_STEP, Numerics, broken_evaluation
from rmetric.errors import LOGGER, UserError, on_one_line
from rmetric.measurements import Observation, in_convention
from rmetric.monitor.alerts import Alert
from rmetric.monitor.changes import SettingChange
from rmetric.monitor.classes import ClassesSeen
from rmetric.monitor.detector_set import Detections, DetectorSet
from rmetric.monitor.estimators import Estimators
from rmetric.monitor.hardware import HardwareReport, HardwareWatch, StepTimes
from rmetric.monitor.loop_invariants import LoopInvariants
from rmetric.monitor.pending_step import ArrivedStep, PendingStep
from rmetric.monitor.ranks.worker_times import INPUT, TIMED, WorkerTimes
from rmetric.monitor.recorder import Recorder
from rmetric.monitor.step_numbers import UNMEASURED, StepNumbers
from rmetric.records import CLASSES, VALIDATION, Event, Observations
from rmetric.state import restore, state_of, usable
from rmetric.states import History

NAMED = 3
"""Tensors that are named where more are cut off."""
MEAN_LOSS, OWN_LOSS = "mean over the workers", "first worker"
"""Sources of ``training_loss`` in a training with several processes."""


class StepPipeline:
    """Processes the steps one after the other.

    Without ``hardware`` slow steps are all that is reported of it; ``workers`` judges the times of several workers.
    """

    def __init__(
        self,
        estimators: Estimators,
        detectors: DetectorSet,
        recorder: Recorder,
        hardware: HardwareWatch | None,
        on_alert: Callable[[Alert], object] | None,
        workers: WorkerTimes | None,
    ) -> None:
        self.estimators, self.detectors = estimators, detectors
        self.step_times, self._invariants = StepTimes(), LoopInvariants()
        self.reports: list[HardwareReport] = []
        """Hardware reports that the user made since the latest step."""
        self.last: Observation | None = None
        self.updated_elsewhere = False
        """True if in the latest step the weights were moved by something else than the optimizer that is watched."""
        self.exceeded: tuple[str, ...] = ()
        """Detectors above their threshold in the latest step."""
        self.non_finite_since: int | None = None
        """First step since which the loss has not been finite; ``None``: it is."""
        self._classes = ClassesSeen()
        self._seen: History | None = History()
        """All records; ``None``: some are not known, and no state can be told."""
        self._recorder, self._hardware, self._on_alert, self._workers = recorder, hardware, on_alert, workers

    def stand_for_more_steps(self, sigma_sq_every: int) -> None:
        """Take in that records come more seldom from now on, and a measurement of σ² in every so many of them."""
        self.estimators.keep_sigma_sq(sigma_sq_every)
        self._invariants.stand_for_more_steps()

    def process(self, pending: PendingStep, *, gradients_cleared: bool = False) -> Observation:
        """Estimate, score, log and warn; waits until the numbers of the step are on the host.

        With ``gradients_cleared`` the loop clears gradients before they are looked at: zeros are then none.
        """
        step = self._arrived(pending, gradients_cleared=gradients_cleared)
        observation = self.last = self.estimators.observe(step)
        if self._seen is not None:
            self._seen.add(observation)
        worst = step.inside.worst if step.inside else {}
        detections = self.detectors.update(observation, step.numbers, worst, step.changes)
        self.exceeded = detections.exceeded
        if not math.isinf(observation["training_loss"]):
            self.non_finite_since = None
        elif self.non_finite_since is None:
            self.non_finite_since = pending.step
        self._recorder.step(step, observation, detections, self.estimators)
        if self._classes.update(step.numbers.scalars, observation["training_loss"]):
            self._note({"event": CLASSES, "step": pending.step, "classes": self._classes.known})
        self._call_user(detections)
        return observation

    @property
    def seen(self) -> Observations | None:
        """The run so far; ``None``: it is not known as a whole."""
        return None if self._seen is None else self._seen.observations

    @property
    def vetoes_update(self) -> bool:
        """True if the update of the latest step is certainly wrong: it has numbers that no healthy step produces.

        Not where a validation loss is all that is wrong.
        """
        last = self.last
        if last is None:
            return False
        of_evaluation_alone = broken_evaluation(last) and not any(math.isinf(last[name]) for name in OF_THE_STEP)
        return math.isinf(last["grad_norm"]) or (Numerics.name in self.exceeded and not of_evaluation_alone)

    def _note(self, event: Event) -> None:
        """Write a line on the run that its states go by."""
        self._recorder.now(event)
        if self._seen is not None:
            self._seen.note(event)

    def note_evaluation(self, step: int, loss: float) -> None:
        if self._seen is not None:
            self._seen.note({"event": VALIDATION, "step": step, "validation_loss": loss})

    def judge_last_evaluation(self, step: int, loss: float) -> None:
        """Alert at the end of the run if its last evaluation, which no record has, is not finite."""
        observation = Observation(step, validation_loss=in_convention(loss), evaluated=True)
        if broken_evaluation(observation):
            detections = self.detectors.update(observation, UNMEASURED)
            self._recorder.alerts(detections, at_end=True)
            self._call_user(detections)

    def _arrived(self, pending: PendingStep, *, gradients_cleared: bool) -> ArrivedStep:
        """The step with its numbers, as soon as they are here, and with what they, workers and hardware say."""
        numbers = self._numbers(pending)
        pending.learning_rate = numbers.scalars.get("learning_rate", pending.learning_rate)
        if gradients_cleared and numbers.norm == 0.0:
            numbers = replace(numbers, gradients=[], norms=numbers.norms[:0])
        self.updated_elsewhere = numbers.scalars.get("updated_elsewhere", 0.0) > 0.0
        if self.updated_elsewhere:  # what its groups say is not the rate of these updates
            pending.learning_rate = math.nan
        inside = None if pending.mechanism is None else pending.mechanism.read()
        reports, of_workers = self._judge_times(pending)
        reports = self._hardware_reports(reports)
        changes = [*(pending.changed_settings or ()), *self._broken_invariants(pending, numbers)]
        return ArrivedStep(pending, numbers, reports, changes, inside, of_workers)

    def _numbers(self, pending: PendingStep) -> StepNumbers:
        """Numbers of a step, with the loss of all workers where it is known."""
        numbers = pending.transfer.read()
        mean = pending.mean_loss.read() if pending.mean_loss is not None else None
        if mean is not None:
            numbers.scalars["training_loss"] = mean
        if self._workers is not None:
            self.estimators.sources["training_loss"] = OWN_LOSS if mean is None else MEAN_LOSS
        return numbers

    def _broken_invariants(self, pending: PendingStep, numbers: StepNumbers) -> list[SettingChange]:
        """What held in every step of the loop and holds no more."""
        cut_off = self.detectors.baseline.cut_off(numbers, pending.requiring)
        of_the_step = {
            "step": pending.step,
            "learning_rate": pending.learning_rate,
            "grad_norm": numbers.norm,
            "required_gradients": pending.required_gradients,
            "cut_off": len(cut_off),
            "reward": math.nan if pending.since.reward is None else pending.since.reward,
        }
        others = pending.since.planned_changes > 0 or pending.regrouped  # a new group has a learning rate of its own
        changes = self._invariants.update({**numbers.scalars, **of_the_step}, planned=others)
        return [_naming(change, cut_off) if change.setting == CUT_OFF else change for change in changes]

    def state_dict(self) -> dict[str, Any]:
        """History that later scores depend on, in plain values."""
        workers = {} if self._workers is None else {"worker_times": self._workers.state_dict()}
        seen = {} if self._seen is None else {"seen": self._seen.state_dict()}
        return {
            "history": state_of(self._history),
            "loop_invariants": state_of(self._invariants),
            "last": None if self.last is None else _measured(self.last),
            "exceeded": list(self.exceeded),
            "classes": state_of(self._classes),
            **seen,
            **workers,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; raises :class:`UserError` for that of other detectors.

        Where that of a detector of the same name, or of what holds in every step, is another version's, it begins anew,
        with a warning.
        """
        theirs, ours = ({*names} for names in (state["history"]["detectors"]["detectors"], self.detectors.detectors))
        if theirs != ours:
            raise UserError(
                f"the run that is resumed was watched by {', '.join(sorted(theirs))}, this one by "
                f"{', '.join(sorted(ours))}; resume with the settings of the first run"
            )
        history = {**state["history"], "detectors": self.detectors.usable(state["history"]["detectors"])}
        self.non_finite_since = restore(self._history, history)["non_finite_since"]
        restore(self._invariants, usable("the check of the loop", self._invariants, state["loop_invariants"]))
        self.last = None if state["last"] is None else Observation(**state["last"])
        self.exceeded = tuple(state["exceeded"])
        self._seen = History.of_state(state["seen"]) if "seen" in state else None
        if "classes" in state:
            restore(self._classes, state["classes"])
        if self._workers is not None and "worker_times" in state:
            self._workers.load_state_dict(state["worker_times"])

    @property
    def _history(self) -> dict[str, Any]:
        return {
            "estimators": self.estimators,
            "detectors": self.detectors,
            "step_times": self.step_times,
            "non_finite_since": self.non_finite_since,
        }

    def _judge_times(self, pending: PendingStep) -> tuple[list[HardwareReport], list[Event]]:
        """Reports of what is slow, and lines for the log; a slow step is told once where a worker is named for it."""
        if self._workers is None or pending.worker_times is None:
            return self._slow_steps([pending.step_time_s]), []
        times_WP = pending.worker_times.read()
        between = [] if pending.inputs_between is None else [pending.inputs_between.read()]
        inputs = np.hstack([times_WP[:, TIMED.index(INPUT)], *between])
        slow = self._slow_steps(self._workers.settled_s(pending.step, pending.step_time_s, inputs))
        slow_workers, events = self._workers.update(pending.step, times_WP)
        return slow_workers or slow, events

    def _slow_steps(self, step_times_s: Sequence[float]) -> list[HardwareReport]:
        """Reports of slow steps: where several train, nobody's, since all wait for the slowest."""
        found = [report for seconds in step_times_s if (report := self.step_times.update(seconds)) is not None]
        return found if self._workers is None else [replace(report, worker=None) for report in found]

    def _hardware_reports(self, of_times: list[HardwareReport]) -> list[HardwareReport]:
        """Hardware reports since the step before."""
        reports, self.reports = self.reports + of_times, []
        if self._hardware is None:
            return reports
        for note in self._hardware.notes():
            LOGGER.warning("%s", note)
        return reports + self._hardware.drain()

    def _call_user(self, detections: Detections) -> None:
        """Call the user for each cause of an alert; a callback that raises is not called again."""
        if self._on_alert is None:
            return
        try:
            for alert in detections.news:
                self._on_alert(alert)
        except Exception as error:  # noqa: BLE001 - whatever a callback does, training goes on
            self._on_alert = None
            LOGGER.warning("on_alert raised %s; it is not called again", on_one_line(error))


def _naming(change: SettingChange, names: Sequence[str]) -> SettingChange:
    """A change of a number of tensors, with some of them by name."""
    few = ", ".join([*names[:NAMED], *(["…"] if len(names) > NAMED else [])])
    return change._replace(now=f"{len(names)} ({few})")


def _measured(observation: Observation) -> dict[str, Any]:
    """Fields of an observation that have a value, for a checkpoint: what was not measured is NaN."""
    values = {field.name: getattr(observation, field.name) for field in fields(observation)}
    return {name: value for name, value in values.items() if value == value}  # NaN alone is unlike itself
