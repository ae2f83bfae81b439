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

    A step that is computed again is not hit again: the flip is transient. Enter it before whatever watches the
    gradients of the workers, so that these hooks see a changed payload.

    Raises
    ------
    UserError
        For a tensor, element, bit or product that the run does not have: on entering, or when the step comes.
    """
    bit_flip = _BitFlip(run, injection)
    with ExitStack() as stack:
        if injection.stage == "memory":
            _inject_memory(stack, run, injection, bit_flip)
        elif injection.stage == "payload":
            _inject_payload(stack, run, injection, bit_flip)
        else:
            _inject_product(stack, run, injection, bit_flip)
        yield


class _BitFlip:
    """The flip of an injection: decides when it is due, flips the bit and notes it."""

    def __init__(self, run: LiveRun, injection: Injection) -> None:
        self._run, self._injection = run, injection
        self._hit_steps: set[int] = set()

    def is_due(self) -> bool:
        """Return whether the injection is due in the current step, and has not been made."""
        step, injection = self._run.step, self._injection
        if step in self._hit_steps or step < injection.step:
            return False
        return step == injection.step or (
            injection.recurs > 0 and self._run.rng("sdc/recurs").random() < injection.recurs
        )

    def apply(self, tensor: Tensor) -> None:
        injection = self._injection
        if injection.element >= tensor.numel() or injection.bit >= float_format(tensor.dtype).bits:
            raise UserError(
                f"{injection.tensor} has {tensor.numel()} numbers of type {float_format(tensor.dtype).name}; "
                f"element {injection.element}, bit {injection.bit} is not there"
            )
        self._hit_steps.add(self._run.step)
        index = tuple(int(number) for number in np.unravel_index(injection.element, tuple(tensor.shape)))
        where: dict[str, Any] = {
            name: value
            for name in ("stage", "target", "kernel", "tensor", "layer", "worker", "call")
            if (value := getattr(injection, name)) is not None
        }
        note_flip(self._run, tensor, index, flip_bit(tensor, index, injection.bit), where)


def _inject_memory(stack: ExitStack, run: LiveRun, injection: Injection, bit_flip: _BitFlip) -> None:
    _parameter(run, injection)

    def flip(batch: Batch | None = None) -> Batch | None:
        if bit_flip.is_due():
            tensor = _memory(run, injection)()
            if tensor is not None:
                bit_flip.apply(tensor)
        return batch

    stack.enter_context(run.at("gradients" if injection.target == "gradient" else "batch", flip))


def _memory(run: LiveRun, injection: Injection) -> Fetch:
    """The call that gets the tensor that lies in memory."""
    sites = {"weight": weights, "gradient": gradients}.get(injection.target, optimizer_state)(run)
    suffix = f".{injection.target}" if injection.target.startswith("exp_avg") else ""
    found = next((site.item for site in sites if site.name == injection.tensor + suffix), None)
    if found is None:
        raise UserError(f"the run has no {injection.target} of {injection.tensor}")
    return found


def _inject_payload(stack: ExitStack, run: LiveRun, injection: Injection, bit_flip: _BitFlip) -> None:
    parameter, current = _parameter(run, injection), -1

    def begin(worker: int) -> None:
        nonlocal current
        current = worker

    def change(gradient: Tensor) -> None:
        if current == injection.worker and bit_flip.is_due():
            bit_flip.apply(gradient)

    stack.enter_context(run.at("micro_batch", begin))
    stack.enter_context(changed_payload(parameter, change))


def _parameter(run: LiveRun, injection: Injection) -> Any:
    parameters = dict(run.model.named_parameters())
    if injection.tensor not in parameters:
        raise UserError(f"the model has no parameter {injection.tensor}; the campaign is of another model")
    return parameters[injection.tensor]


def _inject_product(stack: ExitStack, run: LiveRun, injection: Injection, bit_flip: _BitFlip) -> None:
    assert injection.call is not None and injection.stage in ("forward", "backward")
    active = stack.enter_context(ExitStack())

    def begin(worker: int) -> None:
        active.close()
        if worker == injection.worker and bit_flip.is_due():
            active.enter_context(ProductFlip(injection.stage, injection.call, bit_flip.apply))  # type: ignore[arg-type]

    stack.enter_context(run.at("micro_batch", begin))
    stack.enter_context(run.at("gradients", active.close))
