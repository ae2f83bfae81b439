"""The monitor in ``model.fit`` of Keras 3, whatever backend it has."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rmetric.monitor.guard import ends_alone
from rmetric.monitor.metrics_monitor import MetricsMonitor
from rmetric.monitor.reported_numbers import number_of
from rmetric.monitor.sinks.base import optional_module

_keras: Any = optional_module("keras", "Keras 3", "keras")


class RMetricKeras(_keras.callbacks.Callback):  # type: ignore[misc]
    """Watches ``fit``: ``model.fit(..., callbacks=[RMetricKeras(log="run.jsonl")])``.

    Reported are the loss of each batch, ``val_loss`` and the learning rate: of a schedule that of each step, else that
    at the beginning of the epoch, which callbacks before this one may have set. Keras keeps the gradients to itself; a
    model with a ``train_step`` of its own may return ``grad_norm`` in its logs. Each fit has a log of its own.

    Parameters
    ----------
    **options
        Of :class:`MetricsMonitor`.
    """

    watched = "the batches of fit"

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.closed = False
        inspect.signature(MetricsMonitor).bind(**options)  # a wrong name is told before training
        self._options = options
        self.monitor: MetricsMonitor | None = None
        """That of the latest fit."""
        self._step, self._updates_after = 0, 1
        self._before: tuple[int, Any] = (0, 0.0)
        """Batches of this epoch so far, and the mean of their losses."""
        self._rate: Any = None
        """Learning rate, or its schedule."""

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self.closed = False
        config = {"model_type": self._model.name, **(self._options.get("config") or {})}
        self.monitor = MetricsMonitor(**{**self._options, "config": config})
        optimizer = self._optimizer
        self._updates_after = getattr(optimizer, "gradient_accumulation_steps", None) or 1
        self._step = int(optimizer.iterations) * self._updates_after if optimizer is not None else 0

    @ends_alone
    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._before = 0, 0.0
        if self.monitor is not None:
            self.monitor.leave_out()  # what other callbacks do between epochs
        optimizer = self._optimizer  # in an epoch its variables may be elsewhere (JAX)
        rate: Any = getattr(optimizer, "_learning_rate", None)
        of_schedule = isinstance(rate, _keras.optimizers.schedules.LearningRateSchedule)
        self._rate = _quick(rate) if of_schedule else number_of(getattr(optimizer, "learning_rate", None))

    @ends_alone
    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self.monitor is None or logs is None:
            return
        planned = (self.params or {}).get("steps") or batch + 1  # of several together, the last may be fewer
        before, self._before = self._before, (min(batch + 1, planned), logs["loss"])
        self._step += self._before[0] - before[0]
        update = (self._step - 1) // self._updates_after
        rate = self._rate(update) if callable(self._rate) else self._rate
        loss = OfLatestBatches(*before, *self._before)
        self.monitor.step(loss, step=self._step, grad_norm=logs.get("grad_norm"), learning_rate=rate)

    @ends_alone
    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self.monitor is not None and logs and "val_loss" in logs:
            self.monitor.validation(logs["val_loss"])

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        if self.monitor is not None:
            self.monitor.close()

    @property
    def _optimizer(self) -> Any:
        """The optimizer, also inside one that scales the loss; ``None``: there is none."""
        optimizer = getattr(self.model, "optimizer", None)
        return getattr(optimizer, "inner_optimizer", optimizer)


@lru_cache(1)
def _quick(schedule: Callable[[int], Any]) -> Callable[[int], Any]:
    """The same schedule, compiled for JAX, which would compile parts of it anew in each call."""
    if _keras.backend.backend() != "jax":
        return schedule
    from jax import jit

    compiled: Callable[[int], Any] = jit(schedule)
    return compiled


@dataclass(frozen=True)
class OfLatestBatches:
    """Mean loss of the latest batches, from two means of all batches of an epoch, all of one size: those of Keras.

    >>> float(OfLatestBatches(batches_before=3, mean_before=2.0, batches=4, mean=2.5))
    4.0
    """

    batches_before: int
    mean_before: Any
    batches: int
    mean: Any

    def __float__(self) -> float:
        mean, latest = float(self.mean), self.batches - self.batches_before
        return mean + (mean - float(self.mean_before)) * self.batches_before / latest
