"""The loss of a worker: the exception, and how to recognise it in the errors of torch."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any
from weakref import WeakMethod

from rmetric.monitor.processes import Processes

UNKNOWN_WORKER = -1
"""Rank of a lost worker that is not known: more than one peer could have died and nothing says which."""
_SIGNS = re.compile(
    r"connection (closed|reset) by peer|connection refused|broken pipe|socket (closed|timeout)|remote worker"
    r"|NCCL (communicator was aborted|error)|watchdog caught collective operation timeout",
    re.IGNORECASE,
)
"""Messages of Gloo and NCCL when a peer is gone; Gloo raises a bare ``RuntimeError``."""


class WorkerLost(RuntimeError):  # noqa: N818 - it is an event, as StopIteration is
    """A process of this training is gone: for a training loop that knows it.

    torch has no exception of its own for that; :meth:`caused` recognises what it raises instead.
    """

    def __init__(self, worker: int) -> None:
        super().__init__("a worker is lost" if worker == UNKNOWN_WORKER else f"worker {worker} is lost")
        self.worker = worker
        """Rank of the lost worker, or :data:`UNKNOWN_WORKER`."""

    @staticmethod
    def caused(error: BaseException | None) -> bool:
        """Return whether an exception that ended training, or one behind it, means that a peer died.

        >>> WorkerLost.caused(RuntimeError("[pair.cc:553] Connection closed by peer [127.0.0.1]:1989"))
        True
        >>> WorkerLost.caused(RuntimeError("CUDA out of memory"))
        False
        """
        return any(_means_lost_peer(cause) for cause in _causes(error))

    @staticmethod
    def worker_of(error: BaseException | None, processes: Processes | None = None) -> int:
        """Rank of the lost worker: of two processes the other one; torch names the peer's address, not its rank."""
        known = [cause.worker for cause in _causes(error) if isinstance(cause, WorkerLost)]
        other = (processes or Processes.current()).other
        return known[0] if known else UNKNOWN_WORKER if other is None else other


class LastWords:
    """Calls a function with the exception that ends the program if it means that a peer died.

    A training loop that is left by an exception calls nobody: ``sys.excepthook`` is the last to be told. What stands
    there is called afterwards and is put back by :meth:`close`.

    The object of the method that is called is not kept alive.
    """

    def __init__(self, tell: Callable[[BaseException], None]) -> None:
        self._tell = WeakMethod(tell)
        self._before = sys.excepthook
        sys.excepthook = self

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        tell = self._tell()
        if tell is not None and WorkerLost.caused(error):
            tell(error)
        self._before(kind, error, trace)

    def close(self) -> None:
        """Put back what was there; what somebody has put over it in the meantime is left, and hands on."""
        if sys.excepthook is self:
            sys.excepthook = self._before


def _means_lost_peer(error: BaseException) -> bool:
    if isinstance(error, WorkerLost):
        return True
    dist: Any = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and isinstance(error, dist.DistBackendError | dist.DistNetworkError):
        return True
    return isinstance(error, RuntimeError) and _SIGNS.search(str(error)) is not None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
