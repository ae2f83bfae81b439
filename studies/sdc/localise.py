"""Locate a flip: checksums of a step, and the difference between its two computations."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from rmetric.live.injection.bits import FORMATS
from rmetric.live.run import Batch, LiveRun
from studies.sdc.gradients import Disagreement, watching_workers
from studies.sdc.inject import injecting
from studies.sdc.plan import Injection, Stage
from studies.sdc.products import Product, layer_of, rehearsing


def checksum(tensor: Tensor) -> int:
    """The sum of the numbers' bit patterns as whole numbers, modulo 2^64.

    It does not depend on the order of the sum, works for NaN, and one flipped bit changes it by a power of two. Two
    flips may cancel.

    >>> checksum(torch.tensor([1.0, float("nan")])) == checksum(torch.tensor([1.0, float("nan")]))
    True
    """
    layout = FORMATS.get(tensor.dtype)
    data = tensor.detach().contiguous()
    return int((data.view(layout.integer) if layout else data).sum(dtype=torch.int64))


def memory_of(run: LiveRun) -> dict[str, int]:
    """Name → checksum of every parameter and of all that the optimizer remembers of it."""
    return {name: checksum(tensor) for name, tensor in _memory(run)}


def digest(run: LiveRun) -> str:
    """SHA-256 over the bits of all parameters, buffers and of the optimizer's state: equal runs have equal ones."""
    sum_of_all = hashlib.sha256()
    for name, tensor in _memory(run):
        sum_of_all.update(name.encode())
        sum_of_all.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return sum_of_all.hexdigest()


def _memory(run: LiveRun) -> Iterator[tuple[str, Tensor]]:
    model: nn.Module = run.model
    for name, buffer in model.named_buffers():
        yield f"buffer {name}", buffer
    for name, parameter in model.named_parameters():
        yield name, parameter
        for key, value in sorted(run.optimizer.state.get(parameter, {}).items()):
            if isinstance(value, Tensor) and value.dim():
                yield f"{name}.{key}", value


Worker = int


@dataclass
class StepChecksums:
    """Checksums of one computation of a step."""

    memory: dict[str, int] = field(default_factory=dict)
    """Parameters and optimizer state right before the first forward pass."""
    outputs: dict[tuple[Worker, str], int] = field(default_factory=dict)
    """Output of each module in each worker's forward pass, in the order in which they were finished."""
    contributions: dict[tuple[Worker, str], int] = field(default_factory=dict)
    """Gradient of each parameter in each worker's backward pass."""
    gradients: dict[str, int] = field(default_factory=dict)
    """Sum of the gradients, as the optimizer would get it."""
    largest_logit: float = 0.0
    """Largest absolute output of the language model over all tokens."""


@dataclass(frozen=True)
class StepEvidence:
    """Both computations of one faulty step."""

    stored: dict[str, int]
    """Checksums of the memory when the step before was finished."""
    injected: StepChecksums
    recomputed: StepChecksums
    """The same step computed once more from the memory as it then was."""
    disagreement: Disagreement
    """Disagreement of the workers in the first computation."""
    workers: tuple[int, ...]
    """The workers that the disagreement is about."""


def gather_evidence(run: LiveRun, injection: Injection) -> StepEvidence:
    """Inject into the next step of a run and compute it once more, without an update.

    What the injection changed in memory stays changed: load a snapshot before the run is gone on with.
    """
    stored = memory_of(run)
    with ExitStack() as stack:
        stack.enter_context(injecting(run, injection))  # first, so that all others see what it does
        workers = stack.enter_context(watching_workers(run))
        injected = _computed_with_checksums(run)
        disagreement = workers.last
        recomputed = _computed_with_checksums(run)
    return StepEvidence(stored, injected, recomputed, disagreement, workers.workers)


def _computed_with_checksums(run: LiveRun) -> StepChecksums:
    with _checksums_of(run) as checksums:

        def look() -> None:
            for name, parameter in run.model.named_parameters():
                if parameter.grad is not None:
                    checksums.gradients[name] = checksum(parameter.grad)

        with rehearsing(run, look):
            run.train_step()
    return checksums


@contextmanager
def _checksums_of(run: LiveRun) -> Iterator[StepChecksums]:
    """Hooks on every module and parameter, as long as the context lasts."""
    checksums, current = StepChecksums(), -1

    def begin(worker: int) -> None:
        nonlocal current
        current = worker

    def remember(batch: Batch) -> Batch:
        checksums.memory = memory_of(run)
        return batch

    def output_of(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, given: Any, result: Any) -> None:
            tensor = result[0] if isinstance(result, tuple) and result else result
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                checksums.outputs[current, name] = checksum(tensor)

        return hook

    def gradient_of(name: str) -> Callable[[Tensor], None]:
        def hook(gradient: Tensor) -> None:
            checksums.contributions[current, name] = checksum(gradient)

        return hook

    def logits(module: nn.Module, given: Any, result: Tensor) -> None:
        largest = float(result.detach().float().abs().max())
        checksums.largest_logit = max(checksums.largest_logit, math.inf if math.isnan(largest) else largest)

    with ExitStack() as stack:
        stack.enter_context(run.at("batch", remember))
        stack.enter_context(run.at("micro_batch", begin))
        for name, module in run.model.named_modules():
            stack.callback(module.register_forward_hook(output_of(name)).remove)
        for name, parameter in run.model.named_parameters():
            if parameter.requires_grad:
                stack.callback(parameter.register_hook(gradient_of(name)).remove)
        head = run.model.get_output_embeddings()  # type: ignore[operator]
        stack.callback(head.register_forward_hook(logits).remove)
        yield checksums


Key = TypeVar("Key")


@dataclass(frozen=True)
class Diagnosis:
    """The place that fits the difference."""

    stage: Stage | None
    """None: both computations agree, in memory too; there is nothing to be seen."""
    workers: tuple[int, ...] = ()
    """Workers whose passes differ; none for what happened outside of them."""
    tensors: tuple[str, ...] = ()
    """Modules or parameters that explain the difference equally well, in forward order."""

    @property
    def visible(self) -> bool:
        """True if anything differed."""
        return self.stage is not None

    @property
    def layers(self) -> tuple[int | None, ...]:
        """The decoder layers of the tensors, each once."""
        return tuple(dict.fromkeys(layer_of(name) for name in self.tensors))


def localise(evidence: StepEvidence, products: Sequence[Product]) -> Diagnosis:
    """Name the place.

    ``products`` are those of a pass of the healthy model (:func:`studies.sdc.products.products_of`).

    1. Memory that is not what it was when the last step ended: that tensor. (Recomputing it agrees with itself.)
    2. Outputs of modules that differ: the forward pass of that worker; the products between the last module that agrees
       and the first that does not.
    3. Gradients of a worker that differ: its backward pass. One tensor: the product of that weight's gradient, or the
       payload, which look the same. Several: the products whose gradient flows to these parameters and to no others,
       or to those that differ least from them (a small difference may be rounded away on the way).
    4. Only the sums differ: the gradient in memory.
    """
    injected, recomputed = evidence.injected, evidence.recomputed
    changed = _differing(evidence.stored, injected.memory)
    if changed:
        # What the optimizer remembers of a parameter is told by the parameter's name.
        names = tuple(name.removesuffix(".exp_avg_sq").removesuffix(".exp_avg") for name in changed)
        return Diagnosis("memory", tensors=names)
    outputs = _differing(injected.outputs, recomputed.outputs)
    if outputs:
        first = outputs[0][1]
        tensors = [item.tensor for item in products if item.stage == "forward" and item.seen_in == first]
        return Diagnosis("forward", _workers(outputs), tuple(dict.fromkeys(tensors)) or (first,))
    contributions = _differing(injected.contributions, recomputed.contributions)
    if contributions:
        return Diagnosis("backward", _workers(contributions), _behind({name for _, name in contributions}, products))
    sums = _differing(injected.gradients, recomputed.gradients)
    return Diagnosis("memory", tensors=tuple(sums)) if sums else Diagnosis(None)


def _differing(one: dict[Key, int], other: dict[Key, int]) -> list[Key]:
    """Keys whose checksums differ, in the order of the first."""
    return [key for key, value in one.items() if other.get(key) != value]


def _workers(keys: Iterable[tuple[int, str]]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(worker for worker, _ in keys))


def _behind(names: set[str], products: Sequence[Product]) -> tuple[str, ...]:
    """Tensors of the backward products whose gradients flow to these parameters."""
    backward = [product for product in products if product.stage == "backward"]
    if len(names) == 1 or not backward:
        return tuple(names)
    fewest = min(len(product.reaches ^ names) for product in backward)
    return tuple(dict.fromkeys(product.tensor for product in backward if len(product.reaches ^ names) == fewest))


@dataclass(frozen=True)
class DiagnosisScore:
    """A diagnosis against the truth; None: the injection has no such thing, or nothing was to be seen."""

    visible: bool
    worker: bool | None
    layer: bool | None
    tensor: bool | None
    """True if the true tensor is among those named."""
    named: int
    """Number of tensors named."""


def score_diagnosis(diagnosis: Diagnosis, truth: Injection) -> DiagnosisScore:
    if not diagnosis.visible:
        return DiagnosisScore(False, None, None, None, 0)
    worker = None if truth.worker is None else diagnosis.workers == (truth.worker,)
    layer = diagnosis.layers == (truth.layer,)
    return DiagnosisScore(True, worker, layer, truth.tensor in diagnosis.tensors, len(diagnosis.tensors))
