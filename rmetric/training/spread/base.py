"""What a source of σ² is, and how a process learns that another one died."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, Protocol

import torch.distributed as dist
from torch import Tensor

UNKNOWN_WORKER = -1
"""More than one peer could have died and nothing says which."""
_SIGNS = re.compile(
    r"connection (closed|reset) by peer|connection refused|broken pipe|socket (closed|timeout)|remote worker"
    r"|NCCL (communicator was aborted|error)|watchdog caught collective operation timeout",
    re.IGNORECASE,
)
"""How Gloo and NCCL say that a peer is gone; Gloo raises a bare ``RuntimeError``."""


class GradientSpread(Protocol):
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

    def measure_from_now_on(self) -> None:
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
