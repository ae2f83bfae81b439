"""The gradient norm of every worker, known to all of them."""

from __future__ import annotations

import logging

import torch
import torch.distributed as dist
from torch import Tensor

from rmetric.training.tensors import gathered

LOGGER = logging.getLogger("rmetric")


class NormGather:
    """Sums up the norm of this process's own gradient and exchanges it: one float of each worker a backward pass.

    Whoever communicates the gradients tells of them piece by piece (:meth:`add`) and of the last one (:meth:`finish`),
    in the same order in every process. The exchange is issued right there, among the collectives of the gradients
    themselves, so that no process can miss it: not one whose monitor gave up, not one that has run out of batches and
    only shadows the others (``DDP.join``).

    Parameters
    ----------
    group
        The workers.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._pieces: list[Tensor] = []
        self._exchange: tuple[dist.Work, Tensor] | None = None
        self._passes = 0

    def begin(self) -> None:
        """A backward pass begins; what one that broke off has left is forgotten."""
        self._pieces = []

    def add(self, gradient: Tensor) -> None:
        """A piece of this process's gradient, before it is mixed with the others'."""
        try:
            self._pieces.append(torch.linalg.vector_norm(gradient, dtype=torch.float32))
        except RuntimeError as error:  # out of memory: the exchange must go on, the training too
            LOGGER.warning("a gradient's norm could not be taken: %s", error)
            self._pieces.append(torch.full((), torch.nan, device=gradient.device))

    def finish(self) -> None:
        """That was the last piece: exchange the norms. Waits for nothing."""
        pieces, self._pieces = self._pieces, []
        own = torch.linalg.vector_norm(gathered(pieces)).reshape(1)
        norms = own.new_empty(self._group.size())
        work = dist.all_gather(list(norms.split(1)), own, group=self._group, async_op=True)
        self._exchange = (work, norms)
        self._passes += 1

    def collect(self) -> Tensor | None:
        """Norms of the workers' gradients in this step, shape (workers,), or ``None``.

        A step with several exchanges has none that tells of the whole step: in between its gradients were mixed.
        """
        exchange, self._exchange = self._exchange, None
        passes, self._passes = self._passes, 0
        if exchange is None or passes > 1:
            return None
        work, norms = exchange
        try:
            work.wait()  # on an accelerator its stream waits, not the host
        except RuntimeError:  # a peer died right after the averaging; the training learns of it at its next collective
            return None
        return norms
