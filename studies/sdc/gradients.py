"""Disagreement of one worker's gradient with the others': norm and direction against the rest, from sketches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from rmetric.live.run import LiveRun
from rmetric.monitor.loop_probes import remove_hooks

SIZE = 512
"""Numbers of a sketch: the cosine of two sketches is that of the gradients within about 1/√512 = 0.04."""
SEED = 20_260_401
"""Seed of the signs: all workers must use the same."""


class GradientSketch:
    """Watches the gradient of each backward pass before it is added to others, and sketches it.

    .. math:: s_j = \\sum_{i: i \\bmod n = j} \\pm_i g_i

    with fixed random signs (a count sketch). Hooks on the parameters see what this process or this pass has made: under
    ``DistributedDataParallel`` the local gradient before it is averaged. A parameter without a gradient counts as 0.
    """

    def __init__(self, model: nn.Module) -> None:
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        random = torch.Generator().manual_seed(SEED)
        self._signs = [torch.randint(0, 2, (item.numel(),), generator=random).mul_(2).sub_(1) for item in parameters]
        self._handles = [item.register_hook(self._watcher(index)) for index, item in enumerate(parameters)]
        self._begin()

    def _begin(self) -> None:
        self._sum = torch.zeros(SIZE, dtype=torch.float64)
        self._squares = torch.zeros((), dtype=torch.float64)

    def _watcher(self, index: int) -> Callable[[Tensor], None]:
        def came(gradient: Tensor) -> None:
            flat = gradient.detach().reshape(-1).double()
            device = flat.device
            self._sum, self._squares = self._sum.to(device), self._squares.to(device)
            signed = flat * self._signs[index].to(device)
            padded = torch.nn.functional.pad(signed, (0, -len(signed) % SIZE))
            self._sum += padded.view(-1, SIZE).sum(0)
            self._squares += flat.square().sum()

        return came

    def take(self) -> Tensor:
        """Norm and sketch of what came since the last call, shape (1 + n,), float64."""
        taken = torch.cat([self._squares.sqrt().reshape(1), self._sum])
        self._begin()
        return taken

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        remove_hooks(self._handles)


FEWEST = 3
"""Workers that a median needs: of two that disagree nobody knows who is wrong."""
TOO_FEW = f"fewer than {FEWEST} workers: of two that disagree nobody can tell which is wrong"
NORM_FACTOR = 3.0
"""A norm this many times above or below the median is an alarm: |ln ratio| > ln 3."""


@dataclass(frozen=True)
class Disagreement:
    """The workers' gradients in one step."""

    ratio: NDArray[np.float64]
    """Norm over the median of the finite norms, shape (workers,); infinite where the gradient was not finite."""
    cosine: NDArray[np.float64]
    """Cosine with the coordinate-wise median of all unit gradients, shape (workers,), in [−1, 1]; NaN for a
    gradient that is not finite or zero."""
    reason: str = ""
    """Why it is undefined; empty if it is defined."""

    @property
    def score(self) -> float:
        """Largest |ln ratio|; infinite for a gradient that is not finite, or that is 0 where the others' are not."""
        return math.nan if self.reason else float(self._scores().max())

    @property
    def suspect(self) -> int | None:
        """The worker whose norm is farthest from the median: its position among the workers."""
        return None if self.reason else int(self._scores().argmax())

    @property
    def alarm(self) -> bool:
        """True if a norm is out of proportion; never where it is undefined."""
        return self.score > math.log(NORM_FACTOR)

    def _scores(self) -> NDArray[np.float64]:
        with np.errstate(divide="ignore"):
            return np.abs(np.log(self.ratio))


def disagreement(taken_WK: Tensor) -> Disagreement:
    """Compare the workers. ``taken_WK``: what :meth:`GradientSketch.take` gave of each, shape (workers, 1 + n)."""
    taken = taken_WK.detach().cpu().double().numpy()
    if len(taken) < FEWEST:
        nothing = np.full(len(taken), np.nan)
        return Disagreement(nothing, nothing, TOO_FEW)
    norms, sketches = taken[:, 0], taken[:, 1:]
    finite = np.isfinite(taken).all(axis=1)
    median = float(np.median(norms[finite])) if finite.any() else 0.0
    if median == 0.0:
        equal = np.where(finite & (norms == median), 1.0, np.inf)
        return Disagreement(equal, np.full(len(taken), np.nan))
    ratio = np.where(finite, norms / median, np.inf)
    usable = finite & (np.linalg.norm(np.where(finite[:, None], sketches, 0.0), axis=1) > 0)
    unit = sketches[usable] / np.linalg.norm(sketches[usable], axis=1, keepdims=True)
    middle = np.median(unit, axis=0)
    cosine = np.full(len(taken), np.nan)
    length = float(np.linalg.norm(middle))
    if length > 0:
        cosine[usable] = unit @ middle / length
    return Disagreement(ratio, cosine)


class WorkerWatch:
    """Sketches the gradient of every worker of a live run; see :func:`watching_workers`."""

    def __init__(self, sketch: GradientSketch) -> None:
        self._sketch = sketch
        self._current: int | None = None
        self._taken: dict[int, Tensor] = {}
        self.last = Disagreement(np.empty(0), np.empty(0), TOO_FEW)
        """Disagreement in the last step."""
        self.workers: tuple[int, ...] = ()
        """Workers of that step."""

    def begin(self, worker: int) -> None:
        """A worker's passes begin."""
        self._finish()
        self._current = worker

    def end(self) -> None:
        """All workers are done."""
        self._finish()
        taken, self._taken = self._taken, {}
        if taken:
            self.workers = tuple(taken)
            self.last = disagreement(torch.stack(list(taken.values())))

    def _finish(self) -> None:
        taken = self._sketch.take()
        if self._current is not None:
            self._taken[self._current] = taken
        self._current = None


@contextmanager
def watching_workers(run: LiveRun) -> Iterator[WorkerWatch]:
    """Compare the workers of a live run in every step, as long as the context lasts."""
    with GradientSketch(run.model) as sketch:
        watch = WorkerWatch(sketch)
        with run.at("micro_batch", watch.begin), run.at("gradients", watch.end):
            yield watch


def among_processes(taken: Tensor) -> Disagreement:
    """Compare all processes: each calls it once a step with what its own sketch took, and all get the same.

    One ``all_gather`` of 513 numbers. Call it in every process or in none.
    """
    everybody = [torch.empty_like(taken) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, taken)
    return disagreement(torch.stack(everybody))
