"""Compare directions: of one update and the one before it, and of the micro-batches' gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle, unserializable_hook

from rmetric.errors import UserError
from rmetric.monitor.loop_probes import remove_hooks
from rmetric.monitor.mechanism.base import (
    HookGuard,
    HostArrays,
    MechanismMonitor,
    MonitorResult,
    Task,
    worst_of_each,
)
from rmetric.monitor.tensors import flat, on_cpu, stride_over

ENTRIES = 2**18
"""Entries of the parameters whose change is sampled, evenly over the model; of a smaller model all are."""
GRADIENT_ENTRIES = 2**16
"""Entries of every micro-batch's gradient that are looked at."""


class UpdateAlignment(MechanismMonitor):
    """Cosine of the parameters' change over the last stride and that over the stride before.

    .. math:: \\cos = \\frac{(w_t - w_{t-s}) \\cdot (w_{t-s} - w_{t-2s})}{|w_t - w_{t-s}| \\, |w_{t-s} - w_{t-2s}|}

    Not defined where either change is 0.

    ``entries``: about how many of the parameters are looked at.

    **Source:** cosine similarity as a signal: O. Kao, *Observability and Fault Tolerance for LLM training* (slides, TU
    Berlin).
    **Deviation:** a sample of large models; with sharded parameters the process looks at its own part.
    """

    name: ClassVar[str] = "update_alignment"
    measures: ClassVar[tuple[str, ...]] = ("update_alignment",)

    def __init__(self, model: nn.Module, *, entries: int = ENTRIES) -> None:
        self._parameters, self._stride = _sampled(model, entries, "the monitor of updates' alignment")
        self._before: Tensor | None = None
        self._change: Tensor | None = None

    @torch.no_grad()
    def take(self) -> Task | None:
        now = self._sample()
        before, self._before = self._before, now
        if before is None or not len(now):  # all that is trained may lie in other processes
            return None
        last, self._change = self._change, now - before.to(now)
        if last is None:
            return None
        changes = torch.stack([last.to(now), self._change])
        return lambda: {"gram": _gram(changes)}

    def summarise(self, found: HostArrays) -> MonitorResult:
        (first, dot), (_, second) = found["gram"]
        if first == 0 or second == 0:
            return MonitorResult()
        value = float(dot / np.sqrt(first) / np.sqrt(second))
        return MonitorResult(values={self.name: value}, details={"lengths": np.sqrt([first, second])})

    def state_dict(self) -> dict[str, Any]:
        return {"before": on_cpu(self._before), "change": on_cpu(self._change)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        entries = len(self._sample())
        kept = [state["before"], state["change"]]
        # of another sample, or another part of the model, the directions are not known
        self._before, self._change = (None if item is None or len(item) != entries else item for item in kept)

    @torch.no_grad()
    def _sample(self) -> Tensor:
        return torch.cat([_entries(parameter, self._stride) for parameter in self._parameters])


class GradientAlignment(MechanismMonitor):
    """Smallest cosine of a micro-batch's gradient and the mean of the others' in the sampled step.

    The micro-batches are those of gradient accumulation (in :class:`rmetric.live.run.LiveRun` they stand for
    workers). A step with one backward pass has no such cosine. A hook on every parameter sees what each pass adds; it
    stands in the sampled steps alone and keeps a sample of the entries until the step is over.

    Under ``DistributedDataParallel`` each process sees its own micro-batches. A model under ``fully_shard`` shows none
    and is refused (:class:`~rmetric.errors.UserError`). ``entries``: about how many of the parameters are looked at.

    **Source:** cosine similarity as a signal: O. Kao, *Observability and Fault Tolerance for LLM training* (slides, TU
    Berlin).
    **Deviation:** a sample of large models; workers in other processes are not compared.
    """

    name: ClassVar[str] = "gradient_alignment"
    measures: ClassVar[tuple[str, ...]] = ("gradient_alignment",)

    def __init__(self, model: nn.Module, *, entries: int = GRADIENT_ENTRIES) -> None:
        if any(hasattr(module, "set_requires_gradient_sync") for module in model.modules()):  # fully_shard's own
            raise UserError("the monitor of gradients' alignment does not see the micro-batches of fully_shard")
        self._parameters, self._stride = _sampled(model, entries, "the monitor of gradients' alignment")
        self._handles: list[RemovableHandle] = []
        self._seen: list[list[Tensor]] = []
        self._found: dict[int, Tensor] = {}
        self._guard = HookGuard()

    def arm(self) -> None:
        self.disarm()
        self.restart()
        for index, parameter in enumerate(self._parameters):
            if not parameter.requires_grad:  # frozen, perhaps for a while
                continue
            self._handles += [
                parameter.register_hook(unserializable_hook(self._guard.guarded(self._finder(index)))),
                parameter.register_post_accumulate_grad_hook(self._guard.guarded(self._keeper(index))),
            ]

    def restart(self) -> None:
        self._seen, self._found = [[] for _ in self._parameters], {}

    def disarm(self) -> None:
        remove_hooks(self._handles)

    def take(self) -> Task | None:
        self._guard.check()
        seen, self._seen = self._seen, []
        passes = max(map(len, seen), default=0)
        whole = [parts for parts in seen if len(parts) == passes]  # the others have no gradient in some pass
        if passes < 2:
            return None

        def compare() -> Mapping[str, Tensor]:
            home = whole[0][0].device
            return {
                "gram": _gram(torch.stack([torch.cat([part[i].to(home) for part in whole]) for i in range(passes)]))
            }

        return compare

    def summarise(self, found: HostArrays) -> MonitorResult:
        cosines = cosines_with_the_others(found["gram"])
        if np.isnan(cosines).all():
            return MonitorResult()
        known = np.ma.array(cosines, mask=np.isnan(cosines))
        return worst_of_each({self.name: (known, lambda index: f"micro-batch {index[0]}")}, {"cosines": cosines})

    def _finder(self, index: int) -> Callable[[Tensor], None]:
        def find(gradient: Tensor) -> None:
            self._found[index] = _entries(gradient, self._stride, copy=True)

        return find

    def _keeper(self, index: int) -> Callable[[Tensor], None]:
        """Keep what was found, now that it is added: ``torch.autograd.grad`` finds gradients too, and adds none."""

        def keep(_: Tensor) -> None:
            self._seen[index].append(self._found.pop(index))

        return keep


def cosines_with_the_others(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cosine of each of n vectors and the mean of the other ones, shape (n,), from their inner products, (n, n).

    A vector whose square is not finite has an infinite one and is none of the others; NaN: one of the two is 0.

    >>> cosines_with_the_others(np.array([[1.0, 0.0], [0.0, 4.0]]))
    array([0., 0.])
    """
    whole = np.isfinite(np.diag(gram))
    inner = gram[np.ix_(whole, whole)]
    others = 1.0 - np.eye(len(inner))  # a difference of sums would lose small ones
    cosines = np.full(len(gram), np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        dots, squares = (inner * others).sum(axis=1), (others @ inner * others).sum(axis=1)
        cosines[whole] = dots / np.sqrt(np.diag(inner)) / np.sqrt(np.maximum(squares, 0.0))
    return cosines


def _gram(rows: Tensor) -> Tensor:
    """Inner products of some vectors, (n, n): each is scaled first, for squares of small gradients underflow."""
    scale = rows.abs().amax(dim=1, keepdim=True)
    scaled = rows / scale.where(scale > 0, 1.0)
    scale = scale.double()
    return (scaled @ scaled.T).double() * scale * scale.T


def _sampled(model: nn.Module, entries: int, needed_by: str) -> tuple[list[nn.Parameter], int]:
    """Trainable parameters, and the stride of their sampled entries."""
    parameters = [item for item in model.parameters() if item.requires_grad and item.numel()]
    if not parameters:
        raise UserError(f"{needed_by} needs a model with parameters that are trained")
    return parameters, stride_over(parameters, entries)


def _entries(tensor: Tensor, stride: int, *, copy: bool = False) -> Tensor:
    """Some entries of a tensor (of a sharded one, of this process's part), in single precision."""
    return flat(tensor)[::stride].to(torch.float32, copy=copy)
