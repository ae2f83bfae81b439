"""The monitor of a training run: two lines in anybody's training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, SupportsIndex

import torch
from torch import Tensor, nn

from rmetric.detectors import DEFAULT_DETECTORS, StreamingDetector
from rmetric.measurements import Observation
from rmetric.monitor.alerts import Alert
from rmetric.monitor.arguments import check_recompute, hardware_report
from rmetric.monitor.ending import Failure
from rmetric.monitor.guard import never_raises
from rmetric.monitor.hardware import HardwareWatch
from rmetric.monitor.measures import ENTRIES
from rmetric.monitor.notes import note_of
from rmetric.monitor.parts import PartsFor
from rmetric.monitor.ranks.hang_watch import HangWatch
from rmetric.monitor.repair.policy import Policy, TrainingStopped
from rmetric.monitor.repair.record import RepairRecord
from rmetric.monitor.sinks import Sink

if TYPE_CHECKING:
    from rmetric.monitor.mechanism import MechanismWatch
    from rmetric.monitor.mechanism.watch import MonitorSelection


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
        Size of the vocabulary; ``None``: from ``model.config.vocab_size`` if the model has one. The run's states also
        know the number of classes that the gradients of the logits show.
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
        (:class:`~rmetric.monitor.step_clock.Waits`).

    Raises
    ------
    UserError
        For an argument of the wrong kind, a model with nothing to train, an unknown detector, a log that cannot be
        written at its path, or a distributed set-up that cannot be watched.
        After construction only :meth:`load_state_dict` raises.
    """

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
        parts = PartsFor(
            model=model, optimizer=optimizer, log=log, on_alert=on_alert, announce=announce, detectors=detectors,
            sync=sync, config=config, sinks=sinks, hardware=hardware, vocabulary=vocabulary, scaler=scaler,
            policy=policy, attention_logits=attention_logits, mechanism=mechanism, parameters=parameters,
            update_entries=update_entries, record_every=record_every, sigma_sq_every=sigma_sq_every, hang=hang,
            clock=clock,
        )  # fmt: skip
        self._run = parts.run_watch()

    @property
    def enabled(self) -> bool:
        """True while it watches: until :meth:`close` or an error inside."""
        return self._run.enabled

    @enabled.setter
    def enabled(self, enabled: bool) -> None:
        self._run.enabled = enabled

    @property
    def step_number(self) -> int:
        """Calls of :meth:`step` so far, those before a resume included."""
        return self._run.step_number

    @step_number.setter
    def step_number(self, step: int) -> None:
        self._run.step_number = step

    @property
    def last(self) -> Observation | None:
        """The latest observation that was looked at."""
        return self._run.pipeline.last

    @property
    def alerts(self) -> dict[str, int]:
        """Detector → step of its first alert."""
        return dict(self._run.pipeline.detectors.first_alerts)

    @property
    def repairs(self) -> list[RepairRecord]:
        """Everything that the policies did, in the order of the steps."""
        return [] if self._run.policies is None else list(self._run.policies.log)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be copied or pickled: a copy would watch a model that has none of the hooks."""
        raise TypeError(
            "a monitor cannot be copied or pickled; keep it outside of what is, or copy model.state_dict(), and "
            "monitor.state_dict() for a checkpoint"
        )

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

        Raises
        ------
        UserError
            For a ``recompute`` that is no function.
        """
        check_recompute(recompute)
        try:
            return self._run.step(loss, recompute)
        except TrainingStopped as verdict:
            self.close(verdict)
            raise

    @never_raises(None)
    def validation(self, loss: Tensor | float) -> None:
        """Report a validation loss, nats: that of the model after the latest step.

        The log has it at that step; detectors see it in the next record, or at the end one that is not finite. It is
        taken for a loss, of which less is better: of an accuracy, report 1 minus it.
        """
        self._run.validation(loss)

    @never_raises(None, ends=False)
    def reward(self, reward: Tensor | float) -> None:
        """Report the reward of an agent's episode, or a mean of some; more is better.

        The next record has the mean of those reported since the record before. A loss that rises with the reward, or
        that stands still meanwhile, is then no sign of a run that got worse or never learns.
        """
        self._run.reward(reward)

    @never_raises(None, ends=False)
    def hardware_event(self, component: str, *, kind: str = "correctable", worker: int = 0, details: str = "") -> None:
        """Report a hardware event that something else saw (a cluster manager); it counts for λ.

        ``kind`` is ``correctable``, or ``fatal``: that worker is lost.
        """
        self._run.pipeline.reports.append(hardware_report(component, kind, worker, details))

    @never_raises(None, ends=False)
    def note(self, event: str, *, step: int | None = None, **fields: Any) -> None:
        """Add a line of your own to the log, at the current step unless ``step`` is given.

        What JSON has no form for (a tensor of several numbers, a path) is written as text.
        """
        self._run.recorder.note(note_of(event, self.step_number + 1 if step is None else step, fields))

    @never_raises(None, ends=False)
    def planned(self, what: str) -> None:
        """Announce a change of the training, made on purpose and right before the next step, in your words.

        Another task, other data, layers that are drawn anew: from its numbers alone a change that is meant cannot be
        told from one that is not. The robust R-Metric learns anew what is usual, and no change of a setting in that
        step alerts. Until it has learned (17 records for a loss that is lost again, 32 to 104 for all else) it sees
        less: what comes every few steps is the way of a run, and not to be announced. Where several processes train,
        call it in each of them.
        """
        self._run.announce(what, self.step_number + 1)

    def paused(self) -> AbstractContextManager[None]:
        """Exclude what is done in this context (an evaluation of your own, a snapshot) from the step time."""
        return self._run.clock.paused()

    @property
    def seconds_into_step(self) -> float:
        """Seconds since the last :meth:`step`; NaN before the first, and after a validation or a checkpoint."""
        return self._run.clock.seconds

    def continue_step(self, seconds: float) -> None:
        """Let the current step be that old already: for a fork, which goes on in the middle of its twin."""
        self._run.clock.seconds = seconds

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self, failure: Failure | None = None) -> None:
        """End the log properly and remove every hook. May be called twice.

        The last line says how the run ended: as ``failure`` has it; else NAN_LOSS if the loss was not finite to the
        end; else success. A run that is left through an exception has no such line: it is incomplete. The monitor
        goes on to refer to the model; to free its memory, let go of both.
        """
        self._run.close(failure)

    def detach(self) -> None:
        """Stop watching and remove every hook; the log is left without an end, which the caller writes."""
        self._run.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif not self._run.ended_with_lost_worker(error):
            self.detach()

    def disable(self, error: Exception) -> None:
        """End the monitor because of an error inside, with one warning; training goes on."""
        self._run.disable(error)

    def pass_by(self, error: Exception) -> None:
        """Report, once, that a call is ignored because of its arguments."""
        self._run.pass_by(error)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State that all later scores depend on: plain values and tensors. Looks at the pending step first.

        After :meth:`close`, that of the last step, from which a later training goes on, in the same log. Empty if an
        error has stopped the monitor, or if a detector's state cannot be told in plain values.
        """
        return self._run.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; before the first :meth:`step`. The log goes on where the checkpoint was taken.

        The detectors must be those of the run that is resumed; otherwise the monitor says so and disables itself. One
        that cannot go on from its state, which another version or other settings have left, begins anew, and so does
        the check of the loop; with an empty state a new run begins, and after the first step a state is passed by: each
        with a warning.

        Raises
        ------
        UserError
            For what :meth:`state_dict` has not returned, such as a checkpoint that holds it.
        """
        self._run.load_state_dict(state)
