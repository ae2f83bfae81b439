"""The monitor of a training run: two lines in anybody's training loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from rmetric.detectors import DEFAULT_DETECTORS, StreamingDetector
from rmetric.monitor.alerts import Alert
from rmetric.monitor.base import Monitor
from rmetric.monitor.hardware import HardwareWatch
from rmetric.monitor.measures import ENTRIES
from rmetric.monitor.parts import PartsFor
from rmetric.monitor.ranks.hang_watch import HangWatch
from rmetric.monitor.repair.policy import Policy, TrainingStopped
from rmetric.monitor.repair.record import RepairRecord
from rmetric.monitor.sinks import Sink
from rmetric.monitor.torch_arguments import check_recompute

if TYPE_CHECKING:
    from rmetric.monitor.mechanism import MechanismWatch
    from rmetric.monitor.mechanism.watch import MonitorSelection


class TrainingMonitor(Monitor):
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
        super().__init__(parts.run_watch())

    @property
    def repairs(self) -> list[RepairRecord]:
        """Everything that the policies did, in the order of the steps."""
        return [] if self._run.policies is None else list(self._run.policies.log)

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

    @property
    def seconds_into_step(self) -> float:
        """Seconds since the last :meth:`step`; NaN before the first, and after a validation or a checkpoint."""
        return self._run.clock.seconds

    def continue_step(self, seconds: float) -> None:
        """Let the current step be that old already: for a fork, which goes on in the middle of its twin."""
        self._run.clock.seconds = seconds
