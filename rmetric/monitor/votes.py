"""Votes: decisions that all processes of a training make together, so that each of them does the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rmetric.errors import LOGGER
from rmetric.monitor.dispersion.collectives import CollectiveGuard
from rmetric.monitor.dispersion.mean_loss import group_beside
from rmetric.monitor.processes import Processes

OFF = "updates are not blocked, nothing is repaired"


class Votes:
    """Collectives of all processes, in a group of their own: they meet none of the training, whatever it exchanges.

    None is held, and updates are then made as if all was in order, where not every process takes part: by
    :class:`CollectiveGuard`, and from the first ``DDP.join`` on, under which some processes make no step (torch leaves
    its mark on the model after the end of it).

    ``guard`` is asked before the first vote; what is exchanged lies on ``device``.
    """

    def __init__(self, processes: Processes, model: nn.Module, device: torch.device, guard: CollectiveGuard) -> None:
        self.count = processes.count
        """Processes that train together."""
        self._processes, self._device, self._guard = processes, device, guard
        self._model = getattr(model, "_orig_mod", model)  # what torch.compile has wrapped
        self._group: dist.ProcessGroup | None = None
        self._told = False

    @property
    def several(self) -> bool:
        """Whether there is somebody to be asked."""
        return self.count > 1

    def are_held(self) -> bool:
        """Whether all processes take part, the same in each of them; says once why not. Ask before each vote."""
        if not self.several:
            return True
        if self._joining:
            if self._processes.first and not self._told:
                LOGGER.warning("%s: with uneven inputs (join) the processes make different numbers of steps", OFF)
            self._told = True
            return False
        everybody = dist.distributed_c10d._get_default_group()
        if not self._guard.all_ready(everybody, OFF):
            return False
        if self._group is None:
            self._group = group_beside(everybody)
        return True

    @property
    def _joining(self) -> bool:
        config = getattr(self._model, "_join_config", None)
        return config is not None and bool(config.enable)

    def all_agree(self, proceed: bool) -> bool:
        """Return whether all processes say yes; true where no vote is held or a peer has died. Waits for the others."""
        try:
            return not self.are_held() or not self.any([not proceed])[0]
        except RuntimeError:  # training learns of it at its next collective
            return True

    def any(self, flags: Sequence[bool]) -> list[bool]:
        """Return for each flag whether it is set in some process. One collective, in every process."""
        if not self.several or not flags:
            return list(flags)
        votes = torch.tensor([float(flag) for flag in flags], device=self._device)
        dist.all_reduce(votes, dist.ReduceOp.MAX, group=self._group)
        return [bool(vote) for vote in votes.tolist()]

    def who(self, flag: bool) -> tuple[int, ...]:
        """Return the ranks of the processes in which a flag is set. One collective, in every process."""
        flags = self.any([flag and rank == self._processes.rank for rank in range(self.count)])
        return tuple(rank for rank, said in enumerate(flags) if said)

    def gather(self, value: Any) -> list[Any]:
        """Return what each process says, by its rank, of any type. For what is rare: some collectives, everywhere."""
        said = [value] * self.count
        if self.several:
            # NCCL exchanges objects on the current device, which need not be this process's own.
            with torch.cuda.device_of(torch.empty(0, device=self._device)):
                dist.all_gather_object(said, value, group=self._group)
        return said

    def minimum(self, value: float) -> float:
        """Return the smallest value of all processes. One collective, in every process."""
        if not self.several:
            return value
        smallest = torch.tensor(value, dtype=torch.float64, device=self._device)
        dist.all_reduce(smallest, dist.ReduceOp.MIN, group=self._group)
        return smallest.item()

    def mean(self, values: Tensor) -> Tensor:
        """Average a tensor over all processes, in place. One collective, in every process."""
        if self.several:
            dist.all_reduce(values, group=self._group)
            values /= self._processes.count
        return values
