"""The contract of a source of σ², and what sources over several processes share."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import ClassVar, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from rmetric.monitor.tensors import gathered

LOGGER = logging.getLogger("rmetric")
PATIENCE_S = 30.0
"""Longest wait, once, for the other processes to come to the same place."""
_SERIAL = itertools.count()
"""Number of the next agreement; the same in every process that makes the same ones."""


class CollectiveGuard:
    """Whether every process of a group wants to take part; decided once, and the same for all.

    A collective that one process leaves out hangs all the others, and a monitor that only the first process has is an
    easy mistake. So this is settled through the key-value store of the process group, which no device waits for: who
    comes last says yes, whoever has waited too long says no, and what was said first holds.

    Parameters
    ----------
    group
        The processes.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._size = group.size()
        self._key = f"rmetric/spread/{group.group_name}/{next(_SERIAL)}"

    def all_ready(self) -> bool:
        """Tell that this process is ready, and learn whether all are. Waits at most :data:`PATIENCE_S`."""
        store = dist.distributed_c10d._get_default_store()
        try:
            if store.add(f"{self._key}/ready", 1) == self._size:
                return self._said(store, "yes")
            with suppress(RuntimeError):  # time is up
                store.wait([f"{self._key}/all"], timedelta(seconds=PATIENCE_S))
            return self._said(store, "no")
        except RuntimeError:  # the store has gone with the process that kept it
            return False

    def _said(self, store: dist.Store, answer: str) -> bool:
        """The answer that holds: this one, unless there is one already."""
        agreed = store.compare_set(f"{self._key}/all", "", answer) == b"yes"
        if not agreed:
            LOGGER.warning(
                "σ² over workers is off: not every process has a monitor and calls its step; "
                "create TrainingMonitor in all of them (only the first one writes the log)"
            )
        return agreed


UNKNOWN_WORKER = -1
"""More than one peer could have died and nothing says which."""
_SIGNS = re.compile(
    r"connection (closed|reset) by peer|connection refused|broken pipe|socket (closed|timeout)|remote worker"
    r"|NCCL (communicator was aborted|error)|watchdog caught collective operation timeout",
    re.IGNORECASE,
)
"""How Gloo and NCCL say that a peer is gone; Gloo raises a bare ``RuntimeError``."""


class DispersionSource(Protocol):
    """A source of the gradient norms whose variance is σ².

    A step's gradient is the mean of its parts' gradients: of the workers' (each worker's own gradient), or of the
    micro-batches' (each one's contribution to the sum, times their number).
    """

    name: ClassVar[str]
    """``workers`` or ``micro_batches``, as the log has it."""

    def collect(self) -> Tensor | None:
        """Norms of the parts' gradients, shape (parts,), float32, on the device; a new step begins.

        Called once a step, after its last backward pass. Never waits for the device. ``None``: nothing in this step.
        Norms of a loss that a gradient scaler has multiplied are as large as the scale makes them.
        """

    def start_measuring(self) -> None:
        """Begin at once: a resumed run, which was measured before, need not find out again that it can be.

        Called before the first step, in every process if there are several.
        """

    def close(self) -> None:
        """Give back every hook. May be called twice."""


class WorkerLost(RuntimeError):  # noqa: N818 - it is an event, as StopIteration is
    """A process of this training is gone.

    For a training loop that knows. torch has no exception of its own for that; what it raises instead is recognised by
    :meth:`caused`.
    """

    def __init__(self, worker: int) -> None:
        super().__init__("a worker is lost" if worker == UNKNOWN_WORKER else f"worker {worker} is lost")
        self.worker = worker
        """Its rank, or :data:`UNKNOWN_WORKER`."""

    @staticmethod
    def caused(error: BaseException | None) -> bool:
        """Whether an exception that ended training, or one behind it, means that a peer died.

        >>> WorkerLost.caused(RuntimeError("[pair.cc:553] Connection closed by peer [127.0.0.1]:1989"))
        True
        >>> WorkerLost.caused(RuntimeError("CUDA out of memory"))
        False
        """
        return any(_tells_of_a_death(cause) for cause in _causes(error))

    @staticmethod
    def worker_of(error: BaseException | None) -> int:
        """Who died. With two processes it is the other one; torch names the peer's address but not its rank."""
        known = [cause.worker for cause in _causes(error) if isinstance(cause, WorkerLost)]
        if known:
            return known[0]
        two = dist.is_available() and dist.is_initialized() and dist.get_world_size() == 2
        return 1 - dist.get_rank() if two else UNKNOWN_WORKER


def _tells_of_a_death(error: BaseException) -> bool:
    if isinstance(error, WorkerLost):
        return True
    if dist.is_available() and isinstance(error, dist.DistBackendError | dist.DistNetworkError):
        return True
    return isinstance(error, RuntimeError) and _SIGNS.search(str(error)) is not None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


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
