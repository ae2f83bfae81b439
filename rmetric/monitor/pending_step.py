"""A step that was measured: as long as its numbers are on their way to the host, and as soon as they are there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from rmetric.monitor.changes import SettingChange
from rmetric.monitor.hardware import HardwareReport
from rmetric.monitor.since_record import SinceRecord
from rmetric.monitor.step_numbers import UNMEASURED, StepNumbers
from rmetric.records import Event

if TYPE_CHECKING:  # a loop without torch has none of these
    from rmetric.monitor.dispersion.mean_loss import PendingMean
    from rmetric.monitor.mechanism import MechanismResult
    from rmetric.monitor.mechanism.execution import PendingMeasurement
    from rmetric.monitor.transfer import PendingTensor


class Transfer(Protocol):
    """Numbers on their way to the host."""

    def read(self) -> StepNumbers:
        """The numbers; waits until they have arrived."""


@dataclass(frozen=True)
class Arrived:
    """Numbers that are on the host."""

    numbers: StepNumbers

    def read(self) -> StepNumbers:
        return self.numbers


@dataclass
class PendingStep:
    """A measured step whose numbers are not on the host yet."""

    step: int
    transfer: Transfer
    learning_rate: float
    """Scheduled rate of the update to come; one that comes with the numbers takes its place."""
    step_time_s: float
    """Seconds a step since the record before; NaN in the first one."""
    since: SinceRecord
    """What the training loop has reported since the step before."""
    steps: int = 1
    """Steps that the record stands for."""
    rate_factor: float = 1.0
    """Factor on that rate by which a policy lowers it."""
    dispersion_source: str = ""
    """Source of the parts' norms."""
    mechanism: PendingMeasurement | None = None
    """Results of the mechanism monitors, if it is their step."""
    worker_times: PendingTensor | None = None
    """Each worker's own times, shape (workers, phases), seconds; ``None``: not exchanged."""
    inputs_between: PendingTensor | None = None
    """Sum of all workers' input times in the steps since the record before, seconds, NaN where one was not measured;
    ``None``: there are no such steps."""
    mean_loss: PendingMean | None = None
    """Mean of the workers' losses; ``None``: not exchanged."""
    changed_settings: list[SettingChange] | None = None
    """Settings that have changed abruptly; ``None``: nobody looked."""
    restored_settings: Sequence[SettingChange] = ()
    """Settings that are what they were again."""
    requiring: Sequence[bool] | None = None
    """Of each parameter, whether it requires a gradient; ``None``: nobody looked."""
    may_be_rounded_away: bool = False
    """Whether an update of this learning rate may be too small for the type of the weights."""
    regrouped: bool = False
    """Whether the optimizer has more or fewer groups of parameters than in the step before."""

    @property
    def required_gradients(self) -> float:
        """Parameters that require a gradient; infinite: nobody looked."""
        return math.inf if self.requiring is None else sum(self.requiring)


@dataclass(frozen=True)
class ArrivedStep:
    """A step whose numbers are on the host, with all that is known of it."""

    pending: PendingStep
    numbers: StepNumbers
    reports: Sequence[HardwareReport] = ()
    """Hardware events since the step before."""
    changes: Sequence[SettingChange] = ()
    """Abrupt changes of settings, and of what held in every step of the loop."""
    inside: MechanismResult | None = None
    """Results of the mechanism monitors, if it was their step."""
    of_workers: Sequence[Event] = ()
    """Lines about the workers' times."""


def unmeasured_step(step: int, step_time_s: float, since: SinceRecord, loss: float | None = None) -> PendingStep:
    """A step of which no more is known than its time, its loss, and what was reported before."""
    numbers = UNMEASURED if loss is None else replace(UNMEASURED, scalars={"training_loss": loss})
    return PendingStep(step, Arrived(numbers), math.nan, step_time_s, since)
