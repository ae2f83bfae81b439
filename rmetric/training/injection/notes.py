"""The line of the log that says where a bit was flipped."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from rmetric.training.injection.bits import Flip, float_format
from rmetric.training.live_run import LiveRun


def note_flip(training: LiveRun, tensor: Tensor, index: tuple[int, ...], flip: Flip, where: dict[str, Any]) -> None:
    """Tell the run's observer of a flip: event CORRUPTION with the exact place and the number before and after.

    Parameters
    ----------
    training
        The run; the event stands at the step that it is doing.
    tensor
        The tensor in which the bit was flipped.
    index
        Of the element, one number a dimension.
    flip
        What was changed.
    where
        What else there is to say of the place.
    """
    training.observer.note(
        "CORRUPTION",
        step=training.step,
        **where,
        index=int(np.ravel_multi_index(index, tensor.shape)) if index else 0,
        position=list(index),
        bit=flip.bit,
        bit_part=flip.part,
        dtype=float_format(tensor.dtype).name,
        before=flip.before,
        after=flip.after,
    )
