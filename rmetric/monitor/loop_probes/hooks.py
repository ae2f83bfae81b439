"""Hooks of a model and of an optimizer that come into no copy, no file and no compiled graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle


class PassHook:
    """A hook for the passes of the model it is made for; in a copy, and in a file, stands one that does nothing."""

    def __init__(self, look: Callable[..., None]) -> None:
        self._look = look

    def __call__(self, *given: Any) -> None:
        self._look(*given)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")  # it takes anything and does nothing, in files without this package


class ModelHook(PassHook):
    """The same for passes that train, and that no compiler makes; it is not told which module is called."""

    def __call__(self, module: nn.Module, *given: Any) -> None:
        if module.training and torch.is_grad_enabled() and not _is_traced():
            self._look(*given)


class UpdateHook:
    """A hook for the steps of an optimizer; a step that is compiled is passed by: it could not go into one graph."""

    def __init__(self, look: Callable[..., None]) -> None:
        self._look = look
        self.compiled = False
        """True if a step was passed by."""

    def __call__(self, *given: Any) -> None:
        if torch.compiler.is_compiling():
            self.compiled = True  # the compiled step does that, each time
        else:
            self._look(*given)


def remove_hooks(handles: list[RemovableHandle]) -> None:
    """Give back hooks; the list is empty afterwards."""
    for handle in handles:
        handle.remove()
    handles.clear()


def _is_traced() -> bool:
    """Whether this is a pass of a compiler: what a hook does would become part of the model."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()
