"""The monitor in ``model.fit`` of Keras 3, whatever backend it has."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
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
        self._step = 0
        self._before: tuple[int, Any] = (0, 0.0)
        """Batches of this epoch so far, and the mean of their losses."""
        self._rate: Any = None
        """Learning rate, or its schedule."""

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self.closed = False
        config = {"model_type": self._model.name, **(self._options.get("config") or {})}
        self.monitor = MetricsMonitor(**{**self._options, "config": config})
        optimizer = getattr(self.model, "optimizer", None)
        self._step = int(optimizer.iterations) if optimizer is not None else 0

    @ends_alone
    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self._before = 0, 0.0
        optimizer = getattr(self.model, "optimizer", None)  # in an epoch its variables may be elsewhere (JAX)
        rate: Any = getattr(optimizer, "_learning_rate", None)
        of_schedule = isinstance(rate, _keras.optimizers.schedules.LearningRateSchedule)
        self._rate = rate if of_schedule else number_of(getattr(optimizer, "learning_rate", None))

    @ends_alone
    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self.monitor is None or not logs or "loss" not in logs:
            return
        planned = (self.params or {}).get("steps") or batch + 1  # of several together, the last may be fewer
        before, self._before = self._before, (min(batch + 1, planned), logs["loss"])
        self._step += self._before[0] - before[0]
        rate = self._rate(self._step - 1) if callable(self._rate) else self._rate
        loss = OfLatestBatches(*before, *self._before)
        self.monitor.step(loss, step=self._step, grad_norm=logs.get("grad_norm"), learning_rate=rate)

    @ends_alone
    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self.monitor is not None and logs and "val_loss" in logs:
            self.monitor.validation(logs["val_loss"])

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        if self.monitor is not None:
            self.monitor.close()


@dataclass(frozen=True)
class OfLatestBatches:
    """Mean loss of the latest batches, from two means of all batches of an epoch: those that Keras gives.

    >>> float(OfLatestBatches(batches_before=3, mean_before=2.0, batches=4, mean=2.5))
    4.0
    """

    batches_before: int
    mean_before: Any
    batches: int
    mean: Any

    def __float__(self) -> float:
        return float(
            float(self.mean)
            + (float(self.mean) - float(self.mean_before)) * self.batches_before / (self.batches - self.batches_before)
        )
