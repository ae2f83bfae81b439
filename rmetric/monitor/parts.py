"""The parts of a monitor, each made for the training that is watched and for this process's place in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rmetric.monitor.alerts import Alert
from rmetric.monitor.answers import AnswerWatch
from rmetric.monitor.call_order import CallOrder
from rmetric.monitor.detector_set import DetectorSet
from rmetric.monitor.estimators import Estimators
from rmetric.monitor.hardware import HardwareWatch, own_watch
from rmetric.monitor.notes import readable
from rmetric.monitor.pipeline import StepPipeline
from rmetric.monitor.processes import Processes, measured_in_part
from rmetric.monitor.ranks.hang import beside_the_log
from rmetric.monitor.ranks.hang_watch import HangThread, HangWatch
from rmetric.monitor.ranks.phases import PhaseClock
from rmetric.monitor.ranks.worker_times import WorkerTimes
from rmetric.monitor.record_interval import RecordInterval
from rmetric.monitor.recorder import LogConfig, Recorder, namer, sinks_of, start_config, with_entries, workers_in
from rmetric.monitor.repair.policy import Policy
from rmetric.monitor.repair.runner import PolicyRunner
from rmetric.monitor.sinks import JsonlSink, Sink, Sinks
from rmetric.monitor.step_measurer import StepMeasurer
from rmetric.monitor.votes import Votes

if TYPE_CHECKING:
    from rmetric.monitor.mechanism import MechanismWatch
    from rmetric.monitor.mechanism.watch import MonitorSelection


@dataclass(frozen=True)
class PartsFor:
    """Makes the parts of the monitor of one training."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler | None
    """``None``: there is none that is enabled."""
    vocabulary: int | None
    processes: Processes
    phases: PhaseClock | None
    interval: RecordInterval
    log: str | PathLike[str] | None

    def recorder(
        self, detectors: DetectorSet, announce: bool, sinks: Sequence[Sink], config: Mapping[str, Any] | None
    ) -> Recorder:
        """Writes in the first process; a log that cannot be where it should raises in each of them."""
        known = start_config(
            self.model, detectors.thresholds, self.vocabulary, self.processes.count,
            self.interval.steps, self.interval.steps_per_sigma_sq,
        )  # fmt: skip
        own = readable(config or {})
        start = {**known, **own} if isinstance(config, LogConfig) else with_entries(known, own)
        log = None if self.log is None else JsonlSink(self.log)
        every_sink = sinks_of(log, announce, sinks, self.processes.first)
        return Recorder(
            Sinks(every_sink if self.processes.first else [], namer(log, self.model)),
            start,
            workers_in(config, self.processes.count),
        )

    def mechanism(self, asked: MechanismWatch | MonitorSelection | None) -> MechanismWatch | None:
        """Looks inside the model, in the first process."""
        if asked is None or not self.processes.first:
            return None
        from rmetric.monitor.mechanism import MechanismWatch  # needs transformers, and most runs do not ask

        return (
            asked if isinstance(asked, MechanismWatch) else MechanismWatch(self.model, self.optimizer, monitors=asked)
        )

    def measurer(
        self,
        parameters: Iterable[nn.Parameter] | None,
        update_entries: int | None,
        attention_logits: bool,
        mechanism: MechanismWatch | None,
    ) -> StepMeasurer:
        """Takes the measurements of a step."""
        return StepMeasurer(
            self.model, self.optimizer, scaler=self.scaler, parameters=parameters, update_entries=update_entries,
            attention_logits=attention_logits, mechanism=mechanism, phases=self.phases,
            record_every=self.interval.steps, sigma_sq_every=self.interval.steps_per_sigma_sq,
        )  # fmt: skip

    def own_watch(self, asked: HardwareWatch | bool | None) -> HardwareWatch | None:
        """One process watches all that its host has: if every process did, λ would count each event many times."""
        on_gpu = any(parameter.is_cuda for parameter in self.model.parameters())
        return own_watch(asked, on_gpu=on_gpu) if self.processes.first else None

    def pipeline(
        self,
        detectors: DetectorSet,
        recorder: Recorder,
        hardware: HardwareWatch | None,
        on_alert: Callable[[Alert], object] | None,
    ) -> StepPipeline:
        """Makes of a step's numbers an observation, scores, a record and alerts; the first process calls the user."""
        estimators = Estimators(
            self.vocabulary, scaled=self.scaler is not None,
            record_every=self.interval.steps, sigma_sq_every=self.interval.records_per_sigma_sq,
        )  # fmt: skip
        count, phases = self.processes.count, self.phases
        workers = WorkerTimes(count, phases.lag) if phases is not None and count > 1 else None
        return StepPipeline(
            estimators, detectors, recorder, hardware, on_alert if self.processes.first else None, workers
        )

    def hang_watch(self, asked: HangWatch | bool | None, recorder: Recorder) -> HangThread | None:
        """Says which process holds up the others; ``None``: unwanted, or one process whose phases nobody asked for."""
        if asked is False or self.phases is None:
            return None
        settings = asked if isinstance(asked, HangWatch) else HangWatch()
        tell = recorder.now if self.processes.first else beside_the_log(self.log)
        return HangThread(settings, self.processes, self.phases, tell)

    def call_order(self, measurer: StepMeasurer) -> CallOrder:
        """Says what the loop does at the wrong place; one process tells."""
        order = CallOrder(self.model, measurer.parameters.tensors, self.optimizer, measurer.updates, self.scaler)
        if not self.processes.first:
            order.close()
        elif measured_in_part(self.model):
            order.remark("in part")
        return order

    def answers(self, order: CallOrder) -> AnswerWatch:
        """Says whether the loop leaves out what the monitor refuses."""
        return AnswerWatch(self.optimizer, order.tell)

    def votes(self, measurer: StepMeasurer) -> Votes:
        """Votes of all processes on what each of them is to do."""
        return Votes(self.processes, self.model, measurer.parameters.device, measurer.guard)

    def policies(
        self, asked: Sequence[Policy], measurer: StepMeasurer, recorder: Recorder, votes: Votes
    ) -> PolicyRunner | None:
        """Repairs steps, if a policy is asked for."""
        return PolicyRunner(
            asked, model=self.model, parameters=measurer.parameters, optimizer=self.optimizer, scaler=self.scaler,
            measure=measurer.computation, note=recorder.note, vocabulary=self.vocabulary,
            votes=votes,
        ) if asked else None  # fmt: skip
