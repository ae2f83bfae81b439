"""The monitor in a training loop with Accelerate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from rmetric.attributes import replaced
from rmetric.errors import UserError
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.adapters.hooks import UnseenPasses, check_option_names
from rmetric.monitor.gradient_stamps import GradientStamp
from rmetric.monitor.loop_probes import UpdateHook
from rmetric.monitor.tensors import gathered
from rmetric.monitor.torch_arguments import stepping_optimizer
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
    of what ``backward`` was given in it; where a closure is evaluated several times (LBFGS), of its first evaluation.
    Where passes add up without ``accumulate`` (a loss each), the first record of all may have the first pass alone.
    Only the main process writes. With ``sync=True`` a vetoed step finds no gradients.

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
        inner = stepping_optimizer(optimizer)
        watch = _Watch(accelerator, model, inner, scaler, monitor, combine)
        with (
            inner.register_step_pre_hook(UpdateHook(watch.begin_update)),
            inner.register_step_post_hook(UpdateHook(watch.end_update)),
            nullcontext() if scaler is None else replaced(scaler, "step", watch.scaled_step),
            replaced(accelerator, "backward", watch.backward),
            replaced(accelerator, "unscale_gradients", watch.unscale_gradients),
        ):
            yield monitor


class _Watch:
    """Looks at the gradients of a step once: after its last ``backward`` and before whatever comes next.

    Which pass is the last one is known from the steps before: as many as made one of them. Where that is not known, in
    a step with fewer, or with a scaler, which allows no pass after it has unscaled, the clipping or the update says so.
    """

    def __init__(
        self,
        accelerator: Any,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler | None,
        monitor: TrainingMonitor,
        combine: Callable[[Tensor], Tensor],
    ) -> None:
        self._accelerator, self._model, self._monitor, self._combine = accelerator, model, monitor, combine
        self._backward, self._unscale = accelerator.backward, accelerator.unscale_gradients
        self._optimizer = optimizer
        self._scaled_step: Any = getattr(scaler, "step", None)
        self._most_passes = 1 if scaler is None else math.inf
        """Passes with which a step was complete, at most."""
        self._updating, self._updates, self._proceed = False, 0, True
        self._unseen = UnseenPasses("call accelerator.backward(loss) in place of loss.backward()")
        self._begin_step()

    def _begin_step(self) -> None:
        self._losses: list[Tensor] = []
        self._passes = 0
        """Passes of this step that have left whole gradients: those of Accelerate's last micro-batch."""
        self._exchanged = self._looked = self._unscaled = False

    def scaled_step(self, optimizer: torch.optim.Optimizer, *args: Any, **options: Any) -> Any:
        """Replace ``scaler.step``, which makes no update from gradients that are not finite."""
        own = optimizer is self._optimizer and self._passes > 0
        if own:
            self._look()
        found = self._scaled_step(optimizer, *args, **options)
        if own:
            self._begin_step()
        return found

    def begin_update(self, *_: Any) -> None:
        """Look, if that was not done; expect a closure: each of its evaluations makes a backward pass."""
        if self._losses:
            self._look()
        self._most_passes = max(self._most_passes, self._passes)
        self._updating = True

    def end_update(self, *_: Any) -> None:
        """Expect the next step."""
        self._updating = False
        self._updates += 1
        self._unseen.update()
        self._begin_step()

    def backward(self, loss: Tensor, **options: Any) -> None:
        """Replace ``accelerator.backward``."""
        self._unseen.seen()
        before, updates = self._stamp(), self._updates
        if self._exchanged and not before and not self._updating:
            self._begin_step()  # gradients were cleared, whether there was an update or not
        try:
            self._backward(loss, **options)
        except Exception as error:
            if WorkerLost.caused(error):  # the log is to say so, whatever the loop makes of it
                self._monitor.__exit__(type(error), error, error.__traceback__)
            raise
        now = self._stamp()
        reached = not now.same(before) or self._updates > updates  # an optimizer inside the pass uses gradients up
        if reached or not now:
            self._losses.append(loss.detach().mean())  # else it is another network's: this one got nothing
        self._exchanged = bool(now) or self._accelerator.sync_gradients
        if reached and self._accelerator.sync_gradients:
            self._passes += 1
            if self._updating or self._passes >= self._most_passes:
                self._look()

    def _stamp(self) -> GradientStamp:
        return GradientStamp([*self._model.parameters()], values=False)

    def _look(self) -> None:
        """Look, once a step; a veto holds for each of its passes."""
        if not self._looked:
            self._looked = True
            self._unscale_once()
            self._proceed = self._monitor.step(self._combine(gathered(self._losses)))
        if not self._proceed:
            self._model.zero_grad(set_to_none=True)  # an optimizer passes parameters without a gradient by

    def unscale_gradients(self, optimizer: Any = None) -> None:
        """Replace ``accelerator.unscale_gradients``, with which clipping begins."""
        if self._passes and not self._looked:
            self._look()
        else:
            self._unscale_once()

    def _unscale_once(self) -> None:
        """Unscale, once a step: a scaler does not allow it twice."""
        if not self._unscaled:
            self._unscaled = True
            self._unscale()
