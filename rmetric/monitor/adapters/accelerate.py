"""The monitor in a training loop with Accelerate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rmetric.errors import UserError
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.adapters.hooks import check_option_names, replaced
from rmetric.monitor.arguments import unwrapped
from rmetric.monitor.gradient_stamps import GradientStamp
from rmetric.monitor.loop_probes import UpdateHook
from rmetric.monitor.worker_lost import WorkerLost

KEEP_GRADIENTS = ("DEEPSPEED", "MEGATRON_LM")
"""Ways of Accelerate to distribute that do not leave gradients where a monitor could see them."""


@contextmanager
def monitored(
    accelerator: Any, model: nn.Module, optimizer: torch.optim.Optimizer, **options: Any
) -> Iterator[TrainingMonitor]:
    """Watch a loop that calls ``accelerator.backward``: no further line is needed in it.

    ::

        with monitored(accelerator, model, optimizer, log="run.jsonl") as monitor:
            for batch in loader:
                with accelerator.accumulate(model):
                    accelerator.backward(model(**batch).loss)
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    optimizer.zero_grad()
            monitor.validation(evaluate(model))

    The monitor looks after the last micro-batch of a step, before anything is clipped; the loss of the step is the mean
    over its micro-batches, each of which makes one backward pass; where a closure is evaluated several times (LBFGS),
    of its first evaluation. Only the main process writes. With ``sync=True`` a vetoed step finds no gradients.

    Parameters
    ----------
    accelerator, model, optimizer
        The last two as ``accelerator.prepare`` returned them.
    **options
        Of :class:`TrainingMonitor`.

    Yields
    ------
    TrainingMonitor
        It is closed at the end.

    Raises
    ------
    UserError
        As :class:`TrainingMonitor` does; and under DeepSpeed and Megatron-LM.
    """
    check_option_names(monitored, options)
    with watched(accelerator, model, optimizer, torch.mean, options) as monitor:
        yield monitor


@contextmanager
def watched(
    accelerator: Any,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    combine: Callable[[Tensor], Tensor],
    options: Mapping[str, Any],
) -> Iterator[TrainingMonitor]:
    """:func:`monitored`, with a choice of how the losses of the micro-batches, (n,), make up that of the step."""
    if accelerator.distributed_type in KEEP_GRADIENTS:
        raise UserError(f"{accelerator.distributed_type.value} keeps gradients to itself, so no monitor can see them")
    scaler = getattr(optimizer, "scaler", None)
    with TrainingMonitor(model, optimizer, **{"scaler": scaler, **options}) as monitor:
        watch, inner = _Watch(accelerator, model, monitor, combine), unwrapped(optimizer)
        with (
            inner.register_step_pre_hook(UpdateHook(watch.begin_update)),
            inner.register_step_post_hook(UpdateHook(watch.end_update)),
            replaced(accelerator, "backward", watch.backward),
            replaced(accelerator, "unscale_gradients", watch.unscale_gradients),
        ):
            yield monitor


class _Watch:
    """Looks at the gradients between the last ``backward`` of a step and whatever comes next."""

    def __init__(
        self,
        accelerator: Any,
        model: nn.Module,
        monitor: TrainingMonitor,
        combine: Callable[[Tensor], Tensor],
    ) -> None:
        self._accelerator, self._model, self._monitor, self._combine = accelerator, model, monitor, combine
        self._backward, self._unscale = accelerator.backward, accelerator.unscale_gradients
        self._losses: list[Tensor] = []
        self._unscaled = self._updating = self._answered = self._had_gradients = False
        self._proceed = True

    def begin_update(self, *_: Any) -> None:
        """Expect a closure: each of its evaluations makes a backward pass."""
        self._updating, self._answered = True, False

    def end_update(self, *_: Any) -> None:
        """Expect the next step."""
        self._updating = self._answered = False

    def backward(self, loss: Tensor, **options: Any) -> None:
        """Replace ``accelerator.backward``."""
        self._unscaled = False
        before = self._stamp() if self._accelerator.sync_gradients else None
        try:
            self._backward(loss, **options)
        except Exception as error:
            if WorkerLost.caused(error):  # the log is to say so, whatever the loop makes of it
                self._monitor.__exit__(type(error), error, error.__traceback__)
            raise
        self._losses.append(loss.detach())
        if before is None:
            return
        now = self._stamp()
        self._had_gradients |= bool(now)
        if self._had_gradients and now.same(before):
            self._losses = []  # of another network: this one got nothing
        else:
            self._look()

    def _stamp(self) -> GradientStamp:
        return GradientStamp([*self._model.parameters()], values=False)

    def _look(self) -> None:
        self.unscale_gradients()
        losses, self._losses = self._losses, []
        if not self._answered:
            self._proceed = self._monitor.step(self._combine(torch.stack(losses)))
            self._answered = self._updating
        if not self._proceed:
            self._model.zero_grad(set_to_none=True)  # an optimizer passes parameters without a gradient by

    def unscale_gradients(self, optimizer: Any = None) -> None:
        """Replace ``accelerator.unscale_gradients``: clipping calls it too, and a scaler allows it once a step."""
        if not self._unscaled:
            self._unscaled = True
            self._unscale()
