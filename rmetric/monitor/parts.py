"""The parts of a monitor, each made for the training that is watched and for this process's place in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from rmetric.detectors import StreamingDetector
from rmetric.monitor.alerts import Alert
from rmetric.monitor.answers import AnswerWatch
from rmetric.monitor.arguments import check_options, check_record_interval
from rmetric.monitor.call_order import CallOrder
from rmetric.monitor.detector_set import DetectorSet
from rmetric.monitor.ending import closed_on_error
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
from rmetric.monitor.recorder import (
    LogConfig,
    Recorder,
    namer,
    sinks_of,
    start_config,
    with_entries,
    workers_in,
)
from rmetric.monitor.repair.policy import Policy, checked_policies
from rmetric.monitor.repair.runner import PolicyRunner
from rmetric.monitor.run_watch import RunWatch
from rmetric.monitor.sinks import JsonlSink, Sink, Sinks
from rmetric.monitor.step_clock import StepClock, Waits, own_clock
from rmetric.monitor.step_measurer import StepMeasurer
from rmetric.monitor.torch_arguments import check_parameters, check_torch_options, check_trained, stepping_optimizer
from rmetric.monitor.votes import Votes
from rmetric.network.structure import type_of, unwrapped, vocabulary_of

if TYPE_CHECKING:
    from rmetric.monitor.mechanism import MechanismWatch
    from rmetric.monitor.mechanism.watch import MonitorSelection


@dataclass(kw_only=True)
class PartsFor:
    """Checks the parameters of :class:`~rmetric.monitor.TrainingMonitor`, which says what they mean, and makes of them
    the parts of a monitor.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    log: str | PathLike[str] | None
    on_alert: Callable[[Alert], object] | None
    announce: bool
    detectors: Sequence[str | StreamingDetector]
    sync: bool
    config: Mapping[str, Any] | None
    sinks: Sequence[Sink]
    hardware: HardwareWatch | bool | None
    vocabulary: int | None
    scaler: torch.amp.GradScaler | None
    policy: Policy | Iterable[Policy] | None
    attention_logits: bool
    mechanism: MechanismWatch | MonitorSelection | None
    parameters: Iterable[nn.Parameter] | None
    update_entries: int | None
    record_every: int | Literal["auto"]
    sigma_sq_every: int
    hang: HangWatch | bool | None
    clock: Callable[[], float] | None

    def __post_init__(self) -> None:
        self.optimizer = stepping_optimizer(self.optimizer)
        check_trained(self.model, self.optimizer)
        self.parameters = check_parameters(self.parameters, self.model)
        check_options(**vars(self))
        check_torch_options(**vars(self))
        self._policies, self._processes = checked_policies(self.policy), Processes.current()
        self._several = self._processes.count > 1
        asked = {"sync": self.sync, "policy": self.policy is not None, "mechanism": self.mechanism is not None}
        check_record_interval(self.record_every, self._processes.count, **asked)
        self._interval = RecordInterval(self.record_every, self.sigma_sq_every)
        self.vocabulary = vocabulary_of(self.model) if self.vocabulary is None else self.vocabulary
        self.scaler = self.scaler if self.scaler is not None and self.scaler.is_enabled() else None

    def run_watch(self) -> RunWatch:
        """Make and join them all; where one cannot be made, nothing of the others stays on the model."""
        detectors = DetectorSet(self.detectors, self.vocabulary)
        now = time.perf_counter if self.clock is None else self.clock
        with closed_on_error() as made:
            phases = made(self._phases())
            clock = StepClock(now, phases, Waits() if self.clock is None else float)
            recorder = self._recorder(detectors)
            measurer = made(self._measurer(made(self._mechanism()), phases))
            own = made(self._own_watch())
            pipeline = self._pipeline(detectors, recorder, own, phases)
            hangs = made(self._hang_watch(recorder, phases))
            order = made(self._call_order(measurer))
            votes = Votes(self._processes, self.model, measurer.parameters.device, measurer.guard)
            policies = made(self._policy_runner(measurer, recorder, votes))
            answers = made(AnswerWatch(self.optimizer, order.tell) if self.sync or policies else None)
            return RunWatch(
                processes=self._processes, interval=self._interval, clock=clock, recorder=recorder, measurer=measurer,
                pipeline=pipeline, order=order, policies=policies, answers=answers,
                votes=votes if self.sync else None, others=(hangs, own),
            )  # fmt: skip

    def _phases(self) -> PhaseClock | None:
        """Those of one process are compared with nobody's: only a watch for hangs asks for them."""
        if not (self._several or self.hang):
            return None
        own_time = (own_clock() if self.clock is None else self.clock) if self._several else time.perf_counter
        return PhaseClock(self.model, self.optimizer, own_time)

    def _recorder(self, detectors: DetectorSet) -> Recorder:
        """Writes in the first process; a log that cannot be where it should raises in each of them."""
        count, writes = self._processes.count, self._processes.first
        known = start_config(
            "torch", type_of(self.model), detectors.thresholds, self.vocabulary, count,
            self._interval.steps, self._interval.steps_per_sigma_sq,
        )  # fmt: skip
        own = readable(self.config or {})
        start = {**known, **own} if isinstance(self.config, LogConfig) else with_entries(known, own)
        log = None if self.log is None else JsonlSink(self.log)
        sinks = Sinks(
            sinks_of(log, self.announce, self.sinks, writes), namer(log, type(unwrapped(self.model)).__name__)
        )
        return Recorder(sinks, start, workers_in(self.config, count))

    def _mechanism(self) -> MechanismWatch | None:
        """Looks inside the model, in the first process."""
        asked = self.mechanism
        if asked is None or not self._processes.first:
            return None
        from rmetric.monitor.mechanism import MechanismWatch  # needs transformers, and most runs do not ask

        return (
            asked if isinstance(asked, MechanismWatch) else MechanismWatch(self.model, self.optimizer, monitors=asked)
        )

    def _measurer(self, mechanism: MechanismWatch | None, phases: PhaseClock | None) -> StepMeasurer:
        return StepMeasurer(
            self.model, self.optimizer, scaler=self.scaler, parameters=self.parameters,
            update_entries=self.update_entries, attention_logits=self.attention_logits, mechanism=mechanism,
            phases=phases, interval=self._interval,
        )  # fmt: skip

    def _own_watch(self) -> HardwareWatch | None:
        """One process watches all that its host has: if every process did, λ would count each event many times."""
        on_gpu = any(parameter.is_cuda for parameter in self.model.parameters())
        return own_watch(self.hardware, on_gpu=on_gpu) if self._processes.first else None

    def _pipeline(
        self, detectors: DetectorSet, recorder: Recorder, own: HardwareWatch | None, phases: PhaseClock | None
    ) -> StepPipeline:
        """What becomes of each measured step; the first process alone calls the user."""
        estimators = Estimators(
            self.vocabulary, scaled=self.scaler is not None, sigma_sq_every=self._interval.records_per_sigma_sq
        )
        watch = self.hardware if isinstance(self.hardware, HardwareWatch) else own
        on_alert = self.on_alert if self._processes.first else None
        workers = WorkerTimes(self._processes.count, phases.lag) if phases is not None and self._several else None
        return StepPipeline(estimators, detectors, recorder, watch, on_alert, workers)

    def _hang_watch(self, recorder: Recorder, phases: PhaseClock | None) -> HangThread | None:
        """Says which process holds up the others; ``None``: unwanted, or one process whose phases nobody asked for."""
        if self.hang is False or phases is None:
            return None
        settings = self.hang if isinstance(self.hang, HangWatch) else HangWatch()
        tell = recorder.now if self._processes.first else beside_the_log(self.log)
        return HangThread(settings, self._processes, phases, tell)

    def _call_order(self, measurer: StepMeasurer) -> CallOrder:
        """The watch on calls at the wrong place; the first process alone tells of them."""
        order = CallOrder(self.model, measurer.parameters.tensors, self.optimizer, measurer.updates, self.scaler)
        if not self._processes.first:
            order.close()
        elif measured_in_part(self.model):
            order.remark("in part")
        return order

    def _policy_runner(self, measurer: StepMeasurer, recorder: Recorder, votes: Votes) -> PolicyRunner | None:
        return PolicyRunner(
            self._policies, model=self.model, parameters=measurer.parameters, optimizer=self.optimizer,
            scaler=self.scaler, measure=measurer.computation, note=recorder.note, vocabulary=self.vocabulary,
            votes=votes,
        ) if self._policies else None  # fmt: skip
