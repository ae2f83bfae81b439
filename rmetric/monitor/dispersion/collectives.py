"""Exchange the norms of the workers' gradients without hanging any of them: the sources of σ² over workers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from rmetric.errors import LOGGER
from rmetric.monitor.dispersion.mean_loss import LossExchange, PendingMean, timeouts_of
from rmetric.monitor.tensors import gathered, norms_of, to_device

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

PATIENCE_S = 30.0
"""Longest wait, once, for the other processes to come to the same place."""
SHARE = 1.0 / 3.0
"""The same as a share of the time after which the others give up waiting for this process, and training ends."""
OwnTimes = Callable[[], Sequence[float]]
SERIAL = itertools.count()
"""Number of the next guard; the same in every process that makes the same ones."""
SPREAD = "σ² over workers is off"
"""What is to be said where not every process takes part in it."""


class CollectiveGuard:
    """Decides once, and the same for all processes of a group, whether every one of them takes part in a collective.

    A collective that one process leaves out hangs all the others, and a monitor that only the first process has is an
    easy mistake. So they decide through the key-value store of the process group, which no device waits for: the last
    one to come says yes, one that has waited too long says no, and the first answer holds. A process that has got a no
    says no to whatever is asked later, and waits no more.

    A monitor has one for all its collectives.
    """

    def __init__(self) -> None:
        self._serial = next(SERIAL)
        self._answers: dict[tuple[str, str], bool] = {}

    def all_ready(self, group: dist.ProcessGroup, off: str = SPREAD) -> bool:
        """Report that this process is ready; return whether all are. Waits for :func:`patience_s` at most, once.

        ``off`` is said if one of them is not; one answer is found for each such sentence.
        """
        asked = group.group_name, off
        if asked not in self._answers:
            self._answers[asked] = self._ask(group, "/".join(("rmetric", *asked, str(self._serial))))
            if not self._answers[asked]:
                LOGGER.warning(
                    "%s: not every process has a monitor and calls its step; "
                    "create TrainingMonitor in all of them (only the first one writes the log)", off,
                )  # fmt: skip
        return self._answers[asked]

    def _ask(self, group: dist.ProcessGroup, key: str) -> bool:
        store = dist.distributed_c10d._get_default_store()
        try:
            if not all(self._answers.values()):
                return _decided(store, key, "no")
            if store.add(f"{key}/ready", 1) == group.size():
                return _decided(store, key, "yes")
            with suppress(RuntimeError):  # time is up
                store.wait([f"{key}/all"], timedelta(seconds=patience_s(group)))
            return _decided(store, key, "no")
        except RuntimeError:  # the store has gone with the process that kept it
            return False


def _decided(store: Store, key: str, answer: str) -> bool:
    """Whether the answer that holds is yes: this one holds unless there is one already."""
    agreed: bool = store.compare_set(f"{key}/all", "", answer) == b"yes"
    return agreed


def patience_s(group: dist.ProcessGroup) -> float:
    """Longest wait for the other processes of a group: short of its own timeout, where that is known."""
    return min([PATIENCE_S, *(SHARE * timeout.total_seconds() for timeout in timeouts_of(group))])


class NormGather:
    """Sums up the norm of this process's own gradient and exchanges it: a few floats of each worker a backward pass.

    The communication of the gradients calls :meth:`add` for every piece of them and :meth:`finish` after the last, in
    the same order in every process. The exchange is issued right there, among the collectives of the gradients
    themselves, so that no process can miss it: not one whose monitor gave up, not one that has run out of batches and
    only shadows the others (``DDP.join``).

    The times that ``own_times`` returns when the last gradient is ready, as many in every process, go along with the
    norm. ``joining`` tells whether ``DDP.join`` is on; losses are averaged over ``everyone``, without it over the
    workers.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        own_times: OwnTimes,
        joining: Callable[[], bool] = lambda: False,
        everyone: dist.ProcessGroup | None = None,
    ) -> None:
        self._group = group
        self.losses = LossExchange(group if everyone is None else everyone, joining)
        """Exchange of the losses that belong to the gradients."""
        self.own_times = own_times
        self.worker_times: Tensor | None = None
        """Times of the workers in the exchange that :meth:`collect` looked at, shape (workers, times), seconds."""
        self._pieces: list[Tensor] = []
        self._exchange: tuple[dist.Work, Tensor] | None = None
        self._passes = 0

    def begin(self) -> None:
        """Begin a backward pass; forget the pieces of one that broke off."""
        self._pieces = []

    def add(self, gradient: Tensor) -> None:
        """Add a piece of this process's gradient, before it is averaged with the others'."""
        self.losses.settle()
        try:
            self._pieces += norms_of([gradient])
        except RuntimeError as error:  # out of memory: the exchange must go on, the training too
            LOGGER.warning("a gradient's norm could not be taken: %s", error)
            self._pieces.append(torch.full((), torch.nan, device=gradient.device))

    def finish(self) -> None:
        """Exchange the norms, after the last piece. Waits for nothing."""
        pieces, self._pieces = self._pieces, []
        norm = torch.linalg.vector_norm(gathered(pieces)).reshape(1)
        own = torch.cat([norm, to_device(self.own_times(), norm.device)])
        found = own.new_empty(self._group.size(), len(own))
        work = dist.all_gather(list(found.unbind()), own, group=self._group, async_op=True)
        self._exchange = (work, found)
        self._passes += 1
        self.losses.pass_ended(norm.device)

    def collect(self) -> Tensor | None:
        """Norms of the workers' gradients in this step, shape (workers,), or ``None``.

        A step with several exchanges has none that tells of the whole step: in between its gradients were mixed.
        """
        exchange, self._exchange = self._exchange, None
        passes, self._passes = self._passes, 0
        self.worker_times = None
        if exchange is None:
            return None
        work, found = exchange
        try:
            work.wait()  # on an accelerator its stream waits, not the host
        except RuntimeError:  # a peer died right after the averaging; the training learns of it at its next collective
            return None
        self.worker_times = found[:, 1:]
        return found[:, 0] if passes == 1 else None


class WorkerExchange:
    """Exchanges the norm of each worker's own gradient, in every step from the one on in which all have agreed.

    ``make_gather`` is called once, unless this is closed before; its gather receives every gradient from then on.
    """

    name: ClassVar[str] = "workers"
    """As the log has it."""

    def __init__(self, group: dist.ProcessGroup, make_gather: Callable[[], NormGather], guard: CollectiveGuard) -> None:
        self._group, self._guard = group, guard
        self._make_gather: Callable[[], NormGather] | None = make_gather
        self._gather: NormGather | None = None
        self._losses: LossExchange | None = None
        self._settled = False

    @property
    def worker_times(self) -> Tensor | None:
        """Each worker's own times in the step collected last, shape (workers, times); ``None``: not exchanged."""
        return self._gather.worker_times if self._gather else None

    def collect(self) -> Tensor | None:
        if not self._settled:
            self.start_measuring()
            return None
        return self._gather.collect() if self._gather else None

    def start_measuring(self) -> None:
        """Begin at once, before the first step, as a resumed run does: it need not find out again that it can."""
        self._settled = True
        if self._make_gather is not None and self._guard.all_ready(self._group):
            self._gather = self._make_gather()
            self._losses = self._gather.losses

    def mean_loss(self, loss: Tensor | None) -> PendingMean | None:
        """Begin to average the loss of a step over the workers; ``None``: nothing is exchanged yet."""
        return self._losses.report(loss) if self._losses else None

    def next_step(self, measured: bool) -> None:
        """Do nothing: what the workers exchange they exchange in every step."""

    def refresh(self) -> None:
        """Do nothing: torch exchanges the parameters that it was given when the model was wrapped."""

    def close(self) -> None:
        self._make_gather = None
        self._gather = None
