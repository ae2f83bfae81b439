"""The stack of the thread that trains, and what it is busy with if that may take long."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType

MOST_FRAMES = 25
SLOW_WORK = {
    "torch.serialization": "a checkpoint",
    "torch.distributed.checkpoint": "a checkpoint",
    "safetensors": "a checkpoint",
    "torch._dynamo": "compilation",
    "torch._inductor": "compilation",
    "torch.export": "compilation",
    "triton.compiler": "compilation",
}
"""Package → what takes long in it, in the order of its healthy use: none of it is a hang."""


def stack_of(thread: int) -> list[str]:
    """The frames of a thread of this process, outermost first, as ``module:function:line``; empty if it has ended."""
    frame: FrameType | None = sys._current_frames().get(thread)
    found: list[str] = []
    while frame is not None and len(found) < MOST_FRAMES:
        found.append(f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return found[::-1]


def slow_work(stack: Sequence[str]) -> str:
    """What a stack is busy with, of :data:`SLOW_WORK`; empty: nothing of the kind.

    >>> slow_work(["__main__:train:12", "torch.serialization:save:944"])
    'a checkpoint'
    """
    for frame in reversed(stack):
        for package, work in SLOW_WORK.items():
            if frame.startswith((f"{package}:", f"{package}.")):
                return work
    return ""
