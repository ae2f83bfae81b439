"""Whether a training loop can and does act on what the monitor answers: told once, with the line to change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rmetric.monitor.guard import ends_alone
from rmetric.monitor.loop_probes import UpdateHook, remove_hooks
from rmetric.monitor.tensors import stored


class AnswerWatch:
    """Watches whether updates that the monitor refuses are left out."""

    watched = "the answers of the monitor"

    def __init__(self, optimizer: torch.optim.Optimizer, tell: Callable[[str], None]) -> None:
        self.closed = False
        self.too_late = False
        """True if an update was made by a closure before the monitor was asked: no answer can prevent any."""
        self._tell = tell
        self._asked = self._refused = self._has_closure = False
        self._handles = [
            optimizer.register_step_pre_hook(UpdateHook(self._before_update)),
            optimizer.register_step_post_hook(UpdateHook(self._after_update)),
        ]

    def given(self, proceed: bool) -> bool:
        """Take an answer of ``monitor.step``; returns whether it prevents an update."""
        self._asked, self._refused = True, not proceed and not self.too_late
        return self._refused

    @ends_alone
    def _before_update(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._has_closure = has_closure(args, kwargs)

    @ends_alone
    def _after_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Look, with a closure after its passes: it may ask the monitor in one of them."""
        unasked = self._has_closure and not self._asked and not self.too_late
        # without gradients no update is made: adapters take them away, and a batch may be skipped
        if (unasked or self._refused) and _has_gradients(optimizer):
            self.too_late |= unasked
            self._tell("update first" if unasked else "answer ignored")
        self._asked = self._refused = False

    def close(self) -> None:
        self.closed = True
        remove_hooks(self._handles)


def has_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether the arguments of an optimizer's step, itself the first, have a closure that makes its passes."""
    return any(map(callable, (*args[1:], *kwargs.values())))


def _has_gradients(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether an update was made of anything but zeros; waits for the device."""
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return any(bool(stored(each.grad).any()) for each in parameters if each.grad is not None)
