"""Record runs of several real processes: DistributedDataParallel over Gloo, each process with a share of the data.

Such a run cannot be forked, so a twin and its bugged runs are each trained from the first step to the last; up to the
onset they are equal bit for bit all the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

from rmetric.monitor import TrainingMonitor
from rmetric.network.structure import unwrapped
from rmetric.twins.group import Branch, RecordedRun, finished, twin_of, work_file
from rmetric.twins.snapshots import Schedule, TruthRecord, train, train_to_end, train_with_fault
from rmetric.twins.watching import close_hardware_watch, monitor_of, watching
from studies.processes import end_in_group, join_gloo_group
from studies.zoo.training import Kind, KindRun

COLLECTIVE_TIMEOUT = timedelta(minutes=2)
"""After it a process whose peers have gone gives up."""


class DistributedRun(KindRun):
    """What one process does of a run: it trains on its share of each batch; the first one judges."""

    def __init__(self, kind: Kind, seed: int, steps: int) -> None:
        super().__init__(kind, seed, steps)
        self.model = DistributedDataParallel(self.model)
        torch.manual_seed(seed * dist.get_world_size() + dist.get_rank())  # dropout differs, the weights do not

    def batch(self) -> Any:
        return super().batch().part(dist.get_rank(), dist.get_world_size())

    def train_step(self) -> Tensor:
        """As in one process; all processes agree on whether the loss of any was not finite, and so on the end."""
        loss = super().train_step()
        ended = torch.tensor(float(self.non_finite_step is not None))
        dist.all_reduce(ended, dist.ReduceOp.MAX)
        if ended and self.non_finite_step is None:
            self.non_finite_step = self.step
        return loss

    def held_out_loss(self, purpose: str) -> float:
        """As in one process, by the first one; NaN in the others, which wait in their next step."""
        return math.nan if dist.get_rank() else super().held_out_loss(purpose)

    def held_out_loss_of(self, batch: Any, purpose: str) -> Tensor:
        return self.measure(purpose)(unwrapped(self.model), batch)  # the wrapper would wait for the others


def record_processes(
    kind: Kind, seed: int, schedule: Schedule, branches: Sequence[Branch], folder: Path
) -> Iterator[RecordedRun]:
    """Record a twin and its bugged runs, each in processes of its own; yields each when its log is whole.

    As :func:`rmetric.twins.group.record_group`, whose forks these runs are not.

    Parameters
    ----------
    kind, seed
        What is trained; ``kind.processes`` says by how many processes.
    schedule
        When a run is evaluated and judged, and where it ends.
    branches
        The runs, without benign changes; ``config`` of each must be one that can be pickled. Without a twin among them
        it is trained all the same and leaves no log.
    folder
        Existing folder for the logs, ``<name>.jsonl``. A log appears there only when it is whole.
    """
    if any(branch.change for branch in branches):
        raise ValueError("a run of several processes is recorded without benign changes")
    twin = twin_of(branches)
    with work_file(folder, twin.name) as work:
        truth = _trained_in_processes(kind, seed, schedule, twin, work)
        if twin in branches:
            yield finished(schedule, twin, work, truth, truth)
    for branch in branches:
        if branch.onset is not None:
            with work_file(folder, branch.name) as work:
                own = _trained_in_processes(kind, seed, schedule, branch, work)
                yield finished(schedule, branch, work, own, truth)


def _trained_in_processes(kind: Kind, seed: int, schedule: Schedule, branch: Branch, log: Path) -> TruthRecord:
    """Train one run; :class:`torch.multiprocessing.ProcessRaisedException` if any of its processes fails."""
    with TemporaryDirectory() as name:
        spawn(_process, (kind, seed, schedule, branch, log, Path(name)), nprocs=kind.processes)
        return TruthRecord(**torch.load(Path(name) / "truth", weights_only=True))


def _process(
    rank: int, kind: Kind, seed: int, schedule: Schedule, branch: Branch, log: Path, meeting_place: Path
) -> None:
    """The work of one process."""
    join_gloo_group(meeting_place, rank, kind.processes, COLLECTIVE_TIMEOUT)
    run = DistributedRun(kind, seed, schedule.steps)
    with watching(run, monitor_of(run, log, branch.config(run))) as monitor:
        truth = _trained(schedule, run, monitor, branch)
    close_hardware_watch()
    if rank == 0:
        torch.save(vars(truth), meeting_place / "truth")
    dist.barrier()
    end_in_group()


def _trained(schedule: Schedule, run: KindRun, monitor: TrainingMonitor, branch: Branch) -> TruthRecord:
    truth = TruthRecord()
    if branch.fault is None or branch.onset is None:
        train_to_end(schedule, run, monitor, truth)
        return truth
    for _ in train(schedule, run, monitor, truth, until=branch.onset - 1):
        pass
    train_with_fault(schedule, run, monitor, truth, branch.fault, branch.details)
    return truth
