"""Measure a training step on its device, without waiting for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rmetric.monitor.batch_shapes import BatchShapes
from rmetric.monitor.call_order import LOOKS
from rmetric.monitor.dispersion import dispersion_source
from rmetric.monitor.dispersion.collectives import CollectiveGuard
from rmetric.monitor.ending import close_all, closed_on_error
from rmetric.monitor.kept_settings import KeptSettings
from rmetric.monitor.loop_probes import BatchProbe, StatisticsProbe, TargetProbe, UpdateProbe
from rmetric.monitor.measurer import Measurer
from rmetric.monitor.measures import AttentionLogits, GradientAgreement, GradientNorms, UpdateSize
from rmetric.monitor.parameters import ModelParameters
from rmetric.monitor.pending_step import PendingStep
from rmetric.monitor.ranks.phases import PhaseClock
from rmetric.monitor.ranks.worker_times import INPUT, TIMED
from rmetric.monitor.record_interval import RecordInterval
from rmetric.monitor.since_record import SinceRecord
from rmetric.monitor.torch_arguments import returning_loss, usable_loss
from rmetric.monitor.transfer import DeviceTransfer, PendingTensor, StepComputation

if TYPE_CHECKING:
    from rmetric.monitor.mechanism import MechanismWatch

Loss = Tensor | float
CLASSES_EVERY = 8
"""Records of which one counts the classes."""


class StepMeasurer(Measurer):
    """Takes every measurement of a step; nothing here waits for the device.

    ``interval`` says in which steps :meth:`measure` is called, and :meth:`rest` in those between; it may change.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        scaler: torch.amp.GradScaler | None,
        parameters: Iterable[nn.Parameter] | None,
        update_entries: int | None,
        attention_logits: bool,
        mechanism: MechanismWatch | None,
        phases: PhaseClock | None,
        interval: RecordInterval,
    ) -> None:
        self._optimizer, self._scaler, self._mechanism, self._phases = optimizer, scaler, mechanism, phases
        self._interval = interval
        self.parameters = ModelParameters(model, parameters)
        self.guard = CollectiveGuard()
        """Asked before a collective whether every process takes part."""
        self._gradients = GradientNorms(self.parameters, self.guard)
        self.update = UpdateSize(self.parameters, update_entries)
        self.agreement = GradientAgreement(self.parameters)
        self.settings = KeptSettings(optimizer, model, self.parameters)
        self._shapes = BatchShapes()
        with closed_on_error() as made:
            self.updates, self._batches = made(UpdateProbe(self.parameters, optimizer)), made(BatchProbe(model))
            self._targets, self._statistics = made(TargetProbe(model)), StatisticsProbe(model, self.parameters)
            self._attention = made(AttentionLogits(model) if attention_logits else None)
            own_times = phases.gradients_ready if phases else tuple
            self.dispersion = dispersion_source(model, own_times, self.parameters.may_be, self.guard)
        """Source of the parts' gradient norms."""
        self._watched = self.parameters.version, self.parameters.requiring
        self._groups = len(optimizer.param_groups)
        self._times_between: list[Tensor] = []
        """Each worker's own times in the steps since the latest record."""

    @property
    def _sees_every_step(self) -> bool:
        """Whether there is an agreement of gradients: a running mean over steps needs them all."""
        return self._interval.steps == 1

    def close(self) -> None:
        probes = (self.updates, self._batches, self._targets)
        close_all([*probes, self.dispersion, self._attention, self._mechanism, self._phases])

    def usable(self, loss: Any) -> Tensor | None:
        """A loss as a tensor, on its device; ``None`` if it is not one real number."""
        found = usable_loss(loss)
        return None if found is None else found.detach()

    def computation(self, step: int, loss: Loss | None) -> StepComputation:
        """Collect the traces of a step's forward and backward pass; the next ones begin anew."""
        present, norms = self._gradients.measure(step)
        parts, source = self._parts_norms()
        logit = self._attention.collect() if self._attention else None
        return StepComputation(usable_loss(loss), present, norms, parts, source, logit, self.parameters.names)

    def changed_batches(self) -> str:
        """What is changed with the shape of batches as of this step, in words; empty: nothing. Ask once a record."""
        self._batches.settle()
        shape = self._batches.shape
        return self._shapes.update(shape) if shape else ""

    def measure(self, step: int, computation: StepComputation, step_time_s: float, since: SinceRecord) -> PendingStep:
        """Start the transfer of a step's numbers to the host."""
        scalars = {
            "training_loss": computation.loss,
            "update_rms": self.update.measure(),
            "grad_agreement": self.agreement.measure() if self._sees_every_step else None,
            "attention_logit_max": computation.attention_logit,
            **self.updates.measure(),
            **self._batches.measure(),
            **self._targets.measure(),
            **self._statistics.measure(),
        }
        groups, self._groups = self._groups, len(self._optimizer.param_groups)
        transfer = DeviceTransfer(computation, scalars)
        inside = self._mechanism.step(step) if self._mechanism else None
        rate = _learning_rate(self._optimizer)
        if self._phases is not None:
            self._phases.step_ended(step)
        pending = PendingStep(
            step,
            transfer,
            learning_rate=rate,
            step_time_s=step_time_s,
            since=since,
            steps=self._interval.steps,
            dispersion_source=computation.dispersion_source,
            mechanism=inside,
            worker_times=None if self._worker_times is None else PendingTensor(self._worker_times),
            inputs_between=self._inputs_between(),
            mean_loss=self.dispersion.mean_loss(computation.loss),
            changed_settings=self.settings.measure(),
            restored_settings=self.settings.taken_back,
            requiring=self.parameters.requiring,
            may_be_rounded_away=self.update.may_be_rounded_away(rate),
            regrouped=groups != self._groups,
        )
        self._prepare(step + 1)
        return pending

    def rest(self, step: int) -> None:
        """Pass by a step between two that are measured."""
        self.dispersion.collect()
        if self._worker_times is not None:
            self._times_between.append(self._worker_times)
        if self._attention is not None:
            self._attention.collect()
        if self._phases is not None:
            self._phases.step_ended(step)
            self.keep_pace(step)  # one process alone has nobody to keep pace with
        self._prepare(step + 1)

    def _prepare(self, step: int) -> None:
        """Get ready for a step, before the update that leads to it."""
        due = self._interval.due(step)
        self._batches.armed = self._targets.armed = due
        self._targets.counts = self._counts_classes(step)
        self.updates.arm(due or step <= LOOKS)
        if due and not self._sees_every_step:
            self.update.begin()
        self.dispersion.next_step(step % self._interval.steps_per_sigma_sq == 0)

    def _counts_classes(self, step: int) -> bool:
        """Whether it is a step in which classes are counted: one of so many records, the same ones in a resumed run."""
        return step // self._interval.steps % CLASSES_EVERY == 0

    def forget_update(self) -> None:
        """Take in that the update of the latest step was left out: it has no size."""
        self.update.forget()

    def keep_pace(self, step: int) -> None:
        """Take part in what the other processes exchange in a step and is not yet done here, with nothing measured."""
        with suppress(RuntimeError):  # a peer has died: training learns of it at its next collective
            if self._interval.due(step):
                self._gradients.keep_pace(step)
            self.dispersion.mean_loss(None)

    @property
    def _worker_times(self) -> Tensor | None:
        """Each worker's own times in the step collected last, shape (workers, phases); ``None``: not exchanged."""
        times = self.dispersion.worker_times
        return None if times is None or not times.numel() else times

    def _inputs_between(self) -> PendingTensor | None:
        times, self._times_between = self._times_between, []
        return PendingTensor(torch.stack(times)[..., TIMED.index(INPUT)].sum()) if times else None

    def restarting(self, recompute: Callable[[], Loss]) -> Callable[[], Loss]:
        """Wrap the recomputation of a step: what it returns is checked, and the mechanism monitors first forget what
        they collected in it.
        """
        checked = returning_loss(recompute)
        return self._mechanism.restarting(checked) if self._mechanism else checked

    def state_dict(self) -> dict[str, Any]:
        inside = {} if self._mechanism is None else {"mechanism": self._mechanism.state_dict()}
        agreement = {"agreement": self.agreement.state_dict()} if self._sees_every_step else {}
        return {
            "parameters": self.parameters.state_dict(),
            "update": self.update.state_dict(),
            "settings": self.settings.state_dict(),
            "batch_shapes": self._shapes.state_dict(),
            **agreement,
            **inside,
        }

    def load_state_dict(self, state: Mapping[str, Any], step: int, source: str) -> None:
        """Go on from the state after a step, in which the parts' norms came from this source."""
        if "parameters" in state:  # in that of a MetricsMonitor, which has seen no model, there is none of these
            self.parameters.load_state_dict(state["parameters"])
            self.update.load_state_dict(state["update"])
            self.settings.load_state_dict(state["settings"])
            self._shapes.load_state_dict(state["batch_shapes"])
        if self._sees_every_step and "agreement" in state:  # with other records there is none
            self.agreement.load_state_dict(state["agreement"])
        self._targets.counts = self._counts_classes(step + 1)
        if self._mechanism is not None and "mechanism" in state:
            self._mechanism.load_state_dict(state["mechanism"], step)
        if self.dispersion.name == source:
            self.dispersion.start_measuring()
            self.dispersion.next_step((step + 1) % self._interval.steps_per_sigma_sq == 0)

    def _parts_norms(self) -> tuple[Tensor | None, str]:
        """Gradient norms of the parts, and the name of their source; ``None`` and an empty name: there are none."""
        parts = self.dispersion.collect()
        trained = self.parameters.version, self.parameters.requiring
        if self._watched != trained:
            self._watched = trained
            self.dispersion.refresh()
        if parts is None:
            return None, ""
        # The parts were measured before the gradients were unscaled; get_scale() would wait for the device.
        scale = self._scaler._get_scale_async() if self._scaler is not None else None
        return parts if scale is None else parts / scale.to(parts.device), self.dispersion.name


def _learning_rate(optimizer: torch.optim.Optimizer) -> float:
    """The largest of its groups, since one may rest, at 0; NaN: there is none, or it is no number."""
    rates = []
    for group in optimizer.param_groups:
        with suppress(KeyError, TypeError, ValueError):
            rates.append(float(group["lr"]))
    return max(rates, default=math.nan)
