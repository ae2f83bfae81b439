"""One injection into a live run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from torch import Tensor

from rmetric.errors import UserError
from rmetric.live.injection.bits import flip_bit, float_format
from rmetric.live.injection.flip_sites import Fetch, gradients, optimizer_state, weights
from rmetric.live.injection.flips import ProductFlip, note_flip
from rmetric.live.injection.workers import changed_payload
from rmetric.live.run import Batch, LiveRun
from studies.sdc.plan import Injection


@contextmanager
def injecting(run: LiveRun, injection: Injection) -> Iterator[None]:
    """Flip the bit in its step, as long as the context lasts; the place stands in the log (event CORRUPTION).

    A step that is computed again is not struck again: the flip is transient. Enter it before whatever watches the
    gradients of the workers, so that these hooks see a struck payload.

    Raises
    ------
    UserError
        For a tensor, element, bit or product that the run does not have: on entering, or when the step comes.
    """
    striker = _Striker(run, injection)
    with ExitStack() as stack:
        if injection.stage == "memory":
            _strike_memory(stack, run, injection, striker)
        elif injection.stage == "payload":
            _strike_payload(stack, run, injection, striker)
        else:
            _strike_product(stack, run, injection, striker)
        yield


class _Striker:
    """Knows whether a flip is due, flips and notes it."""

    def __init__(self, run: LiveRun, injection: Injection) -> None:
        self._run, self._injection = run, injection
        self._struck: set[int] = set()

    def is_due(self) -> bool:
        """Whether this step is to be struck and has not been."""
        step, injection = self._run.step, self._injection
        if step in self._struck or step < injection.step:
            return False
        return step == injection.step or (
            injection.recurs > 0 and self._run.rng("sdc/recurs").random() < injection.recurs
        )

    def strike(self, tensor: Tensor) -> None:
        """Flip the bit in place."""
        injection = self._injection
        if injection.element >= tensor.numel() or injection.bit >= float_format(tensor.dtype).bits:
            raise UserError(
                f"{injection.tensor} has {tensor.numel()} numbers of type {float_format(tensor.dtype).name}; "
                f"element {injection.element}, bit {injection.bit} is not there"
            )
        self._struck.add(self._run.step)
        index = tuple(int(number) for number in np.unravel_index(injection.element, tuple(tensor.shape)))
        where: dict[str, Any] = {
            name: value
            for name in ("stage", "target", "kernel", "tensor", "layer", "worker", "call")
            if (value := getattr(injection, name)) is not None
        }
        note_flip(self._run, tensor, index, flip_bit(tensor, index, injection.bit), where)


def _strike_memory(stack: ExitStack, run: LiveRun, injection: Injection, striker: _Striker) -> None:
    _parameter(run, injection)

    def flip(batch: Batch | None = None) -> Batch | None:
        if striker.is_due():
            tensor = _memory(run, injection)()
            if tensor is not None:
                striker.strike(tensor)
        return batch

    stack.enter_context(run.at("gradients" if injection.target == "gradient" else "batch", flip))


def _memory(run: LiveRun, injection: Injection) -> Fetch:
    """How to get the tensor that lies in memory."""
    sites = {"weight": weights, "gradient": gradients}.get(injection.target, optimizer_state)(run)
    suffix = f".{injection.target}" if injection.target.startswith("exp_avg") else ""
    found = next((site.item for site in sites if site.name == injection.tensor + suffix), None)
    if found is None:
        raise UserError(f"the run has no {injection.target} of {injection.tensor}")
    return found


def _strike_payload(stack: ExitStack, run: LiveRun, injection: Injection, striker: _Striker) -> None:
    parameter, current = _parameter(run, injection), -1

    def begin(worker: int) -> None:
        nonlocal current
        current = worker

    def change(gradient: Tensor) -> None:
        if current == injection.worker and striker.is_due():
            striker.strike(gradient)

    stack.enter_context(run.at("micro_batch", begin))
    stack.enter_context(changed_payload(parameter, change))


def _parameter(run: LiveRun, injection: Injection) -> Any:
    parameters = dict(run.model.named_parameters())
    if injection.tensor not in parameters:
        raise UserError(f"the model has no parameter {injection.tensor}; the campaign is of another model")
    return parameters[injection.tensor]


def _strike_product(stack: ExitStack, run: LiveRun, injection: Injection, striker: _Striker) -> None:
    assert injection.call is not None and injection.stage in ("forward", "backward")
    active = stack.enter_context(ExitStack())

    def begin(worker: int) -> None:
        active.close()
        if worker == injection.worker and striker.is_due():
            active.enter_context(ProductFlip(injection.stage, injection.call, striker.strike))  # type: ignore[arg-type]

    stack.enter_context(run.at("micro_batch", begin))
    stack.enter_context(run.at("gradients", active.close))
