"""What more than one component asks about a record: whether a change is planned, and where the training loss is."""

from __future__ import annotations

from typing import NamedTuple

from rmetric.records import Observation
from rmetric.robust.learning_curve import LearningCurve, bounded
from rmetric.robust.reference import CLIP
from rmetric.robust.schedule import Schedule

LOSS_FLOOR_NATS = 0.005
"""Smallest scale of a training loss that matters."""


class Context(NamedTuple):
    """Of one record; NaN where the loss cannot be judged."""

    planned: bool
    """Whether the learning rate has just been raised, so that loss and gradients are meant to move."""
    loss_z: float
    """Robust z of the training loss against its own course."""
    loss_excess_nats: float
    """How far it lies above that course."""


class RunSoFar:
    """Makes the context of the records of a run, one after the other."""

    def __init__(self, window: int, warm_up: int) -> None:
        self._schedule = Schedule(window)
        self._curve = LearningCurve(window=window, warm_up=warm_up, floor=LOSS_FLOOR_NATS, clip=CLIP)

    def update(self, observation: Observation) -> Context:
        """The context of the next record."""
        planned = self._schedule.raised(observation["learning_rate"])
        z = self._curve.update(observation.step, bounded(observation["training_loss"]))
        return Context(planned, z, self._curve.excess)
