"""The next step without its consequences: its passes are done, the weights are left as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from rmetric.training.live_run import LiveRun, Silent


class _NoUpdate(Silent):
    """Looks at a step and vetoes its update."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look

    def step(self, loss: Tensor, *, recompute: Callable[[], Tensor] | None = None) -> bool:
        self._look()
        return False


@contextmanager
def rehearsing(run: LiveRun, look: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Within the context ``run.train_step()`` does the next step without an update; afterwards it is undone.

    The number of the step, the random state and the scaler are as before, so that the same step can be done again: same
    batch, same random numbers. What an injection has changed in memory stays changed.

    Parameters
    ----------
    run
        Between two steps.
    look
        Called when the gradients of all workers are there and nothing has clipped them.
    """
    step, observer, random = run.step, run.observer, torch.get_rng_state()
    scaler, non_finite = run.scaler.state_dict(), run.non_finite_step
    run.observer = _NoUpdate(look)
    try:
        yield
    finally:
        run.observer, run.step, run.non_finite_step = observer, step, non_finite
        torch.set_rng_state(random)
        if scaler:
            run.scaler.load_state_dict(scaler)
