"""The mean of the workers' losses, without waiting for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rmetric.monitor.tensors import own_stream

PATIENCE_S = 5.0
"""Longest wait for a mean that is asked for before the others have reported their loss of the same step."""
POLL_S = 5e-5


class PendingMean:
    """The mean of a step's losses on its way; read it a step later, when it is there as a rule.

    ``sums``: the sum of the losses and the number of workers that reported one, shape (2,).
    """

    def __init__(self, work: dist.Work, sums: Tensor) -> None:
        self._work, self._sums = work, sums

    def read(self) -> float | None:
        """Nats; ``None`` if it has not come, or a peer has died. Waits for no other work of the device."""
        until_s = time.monotonic() + PATIENCE_S
        while not self._work.is_completed():
            if time.monotonic() > until_s:
                return None
            time.sleep(POLL_S)
        try:
            with torch.cuda.stream(own_stream(self._sums.device)):  # the copy to the host waits for nothing else
                self._work.wait()
                total, workers = self._sums.tolist()
        except RuntimeError:  # training learns of it at its next collective
            return None
        return float(total / workers) if workers else None


def group_beside(group: dist.ProcessGroup) -> dist.ProcessGroup:
    """Another group of the same processes: what goes through it meets no collective of the training in another order.

    All of them call this at the same time.
    """
    ranks, backend = dist.get_process_group_ranks(group), dist.get_backend(group)
    # torch's own default is 10 to 30 minutes, whatever the training has chosen
    timeout = next(iter(timeouts_of(group)), None)
    return dist.new_group(ranks, timeout, backend, use_local_synchronization=True)


def timeouts_of(group: dist.ProcessGroup) -> list[timedelta]:
    """How long the training waits for a lost peer, by kind of device; not every backend and version of torch tells."""
    found: list[timedelta] = []
    with suppress(AttributeError, RuntimeError):
        for device in group._device_types:
            options: Any = group._get_backend(device).options
            found.append(options._timeout)
    return found


class LossExchange:
    """Adds up the workers' losses: one all-reduce of two floats after each backward pass.

    Every process takes part in every one of them, whatever becomes of its monitor: one that has not reported a loss
    when it runs forward or backward again does it then, without a loss. The exchange has a group of its own, so that it
    meets no collective of the training in another order. With ``DDP.join``, where some processes only shadow the
    others, nothing is exchanged.

    All workers make this object at the same time; ``joining`` tells whether ``DDP.join`` is on.
    """

    def __init__(self, group: dist.ProcessGroup, joining: Callable[[], bool]) -> None:
        self._group = group_beside(group)
        self._joining = joining
        self._due: torch.device | None = None

    def pass_ended(self, device: torch.device) -> None:
        """Expect a loss: the gradients of a backward pass have been exchanged."""
        self._due = None if self._joining() else device

    def report(self, loss: Tensor | None) -> PendingMean | None:
        """Begin to average the loss of a step; ``None`` if no backward pass was exchanged since the last one."""
        if self._due is None:
            return None
        device, self._due = self._due, None
        sums = torch.zeros(2, device=device)
        if loss is not None:
            sums = torch.stack([loss.detach().to(device, torch.float32, non_blocking=True).reshape(()), sums[1] + 1.0])
        return PendingMean(dist.all_reduce(sums, group=self._group, async_op=True), sums)

    def settle(self, *_: Any) -> None:
        """Take part in an exchange that is still due, before anything else is exchanged."""
        if self._due is not None:
            self.report(None)
