"""The monitor of a training that tells its numbers itself: JAX, Keras, or whatever else has a loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, SupportsFloat

from rmetric.detectors import DEFAULT_DETECTORS, StreamingDetector
from rmetric.monitor.alerts import Alert
from rmetric.monitor.arguments import check_options
from rmetric.monitor.base import Monitor
from rmetric.monitor.detector_set import DetectorSet
from rmetric.monitor.ending import closed_on_error
from rmetric.monitor.estimators import Estimators
from rmetric.monitor.hardware import HardwareWatch, own_watch
from rmetric.monitor.notes import readable
from rmetric.monitor.pipeline import StepPipeline
from rmetric.monitor.processes import Processes
from rmetric.monitor.record_interval import RecordInterval
from rmetric.monitor.recorder import Recorder, namer, sinks_of, start_config, with_entries
from rmetric.monitor.remarks import Remarks
from rmetric.monitor.reported_numbers import ReportedNumbers, number_of
from rmetric.monitor.run_watch import RunWatch
from rmetric.monitor.sinks import JsonlSink, Sink, Sinks
from rmetric.monitor.step_clock import StepClock, Waits

BACKEND = "reported"
"""``backend`` of a log of numbers that a loop has told."""
LARGEST_STEP = 2**53
"""Beyond it not every whole number is one in double precision."""
STEPS_RISE = (
    "monitor.step(loss, step=...) was given a step that is not after the one before, or no whole number; it is counted "
    "as the next one. Count on from epoch to epoch; after going back to a checkpoint, make a new monitor and call its "
    "load_state_dict"
)


class MetricsMonitor(Monitor):
    """Watches a training by the numbers that its loop reports: scores, warns, logs. Needs no torch.

    What :class:`TrainingMonitor` finds in loss, gradient norm, learning rate, update and step time this one finds as
    well. It sees no model: no repeated batch, no layer, no setting of an optimizer, and it prevents no update.

    >>> import rmetric
    >>> with rmetric.MetricsMonitor(hardware=False) as monitor:
    ...     for step in range(0, 30, 10):
    ...         monitor.step(2.0 - 0.01 * step, step=step, grad_norm=1.0, learning_rate=3e-4)
    >>> monitor.last.step, monitor.last.learning_rate, monitor.alerts
    (20, 0.0003, {})

    Parameters
    ----------
    log, on_alert, announce, detectors, config, sinks, vocabulary, clock
        As for :class:`TrainingMonitor`. Where several processes train, make the monitor in one of them.
    hardware
        A :class:`HardwareWatch`, which stays yours to close; ``None`` or ``True``: one over what this machine has, the
        latter with a warning about what is missing; ``False``: slow steps only.

    Raises
    ------
    UserError
        For an argument of the wrong kind, an unknown detector, or a log that cannot be written at its path. After
        construction only :meth:`load_state_dict` raises.
    """

    def __init__(
        self,
        *,
        log: str | PathLike[str] | None = None,
        on_alert: Callable[[Alert], object] | None = None,
        announce: bool = True,
        detectors: Sequence[str | StreamingDetector] = DEFAULT_DETECTORS,
        config: Mapping[str, Any] | None = None,
        sinks: Sequence[Sink] = (),
        hardware: HardwareWatch | bool | None = None,
        vocabulary: int | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        check_options(
            log=log, on_alert=on_alert, announce=announce, detectors=detectors, config=config, sinks=sinks,
            hardware=hardware, vocabulary=vocabulary, clock=clock,
        )  # fmt: skip
        judged, file = DetectorSet(detectors, vocabulary), None if log is None else JsonlSink(log)
        started = with_entries(start_config(BACKEND, "", judged.thresholds, vocabulary, 1), readable(config or {}))
        recorder = Recorder(Sinks(sinks_of(file, announce, sinks, writes=True), namer(file, "run")), started, 1)
        order = Remarks()
        self._numbers = ReportedNumbers(order.tell)
        with closed_on_error() as made:
            own = made(own_watch(hardware, on_gpu=False))
            watch = hardware if isinstance(hardware, HardwareWatch) else own
            run = RunWatch(
                processes=Processes(), interval=RecordInterval(1),
                clock=StepClock(clock or time.perf_counter, waited=Waits() if clock is None else float),
                recorder=recorder, measurer=self._numbers, order=order, policies=None, answers=None, votes=None,
                pipeline=StepPipeline(Estimators(vocabulary), judged, recorder, watch, on_alert, workers=None),
                others=(own,),
            )  # fmt: skip
        super().__init__(run)

    def step(
        self,
        loss: SupportsFloat,
        *,
        step: SupportsFloat | None = None,
        grad_norm: SupportsFloat | None = None,
        learning_rate: SupportsFloat | None = None,
        update_rms: SupportsFloat | None = None,
    ) -> None:
        """Report a step, in every step or in every so many of them.

        Each is a number, or an array of JAX, torch, TensorFlow, NumPy or the like that holds one. Those on a device are
        read in the next call, one step later; do not donate their buffers. A value that is not finite is judged as
        such, one that is left out counts as not measured. Call it from one thread.

        Parameters
        ----------
        loss
            Training loss, nats: of this step, or the mean of those since the last call.
        step
            Number of the step, larger than the one before, read at once; ``None``: the next one, the first is 1.
        grad_norm
            Norm of the whole gradient, before it is clipped; below 0, as DeepSpeed has it, it is not finite.
        learning_rate
            That of the next update, or of the last; the same in each call.
        update_rms
            Root mean square of the change of all parameters by the last update.
        """
        number = None if step is None else self._after_the_last(number_of(step))
        self._numbers.report({"grad_norm": grad_norm, "learning_rate": learning_rate, "update_rms": update_rms})
        self._run.step(loss, number=number)

    def _after_the_last(self, step: float | None) -> int | None:
        """A step as a whole number; ``None``, which is told, if it cannot come next."""
        first = 0 if self._numbers.before is None and self._run.step_number == 0 else self._run.step_number + 1
        if step is not None and first <= step < LARGEST_STEP:
            return int(step)
        self._run.order.tell(STEPS_RISE)
        return None
