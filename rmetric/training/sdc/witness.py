"""What is remembered of a step so that, when it is computed once more, the difference tells where it went wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from rmetric.training.live_run import Batch, LiveRun
from rmetric.training.sdc.checksums import checksum, memory_of
from rmetric.training.sdc.disagreement import Disagreement, watching_workers
from rmetric.training.sdc.inject import injecting
from rmetric.training.sdc.plan import Injection
from rmetric.training.sdc.rehearsal import rehearsing

Worker = int


@dataclass
class Witness:
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
class Evidence:
    """Of one struck step."""

    stored: dict[str, int]
    """Checksums of the memory when the step before was finished."""
    struck: Witness
    again: Witness
    """The same step computed once more from the memory as it then was."""
    disagreement: Disagreement
    """Of the workers in the struck computation."""
    workers: tuple[int, ...]
    """Which workers the disagreement is about."""


def gather_evidence(run: LiveRun, injection: Injection) -> Evidence:
    """Strike the next step of a run and compute it once more, without an update.

    What the injection changed in memory stays changed: load a snapshot before the run is gone on with.
    """
    stored = memory_of(run)
    with ExitStack() as stack:
        stack.enter_context(injecting(run, injection))  # first, so that all others see what it does
        workers = stack.enter_context(watching_workers(run))
        struck = _witnessed(run)
        disagreement = workers.last
        again = _witnessed(run)
    return Evidence(stored, struck, again, disagreement, workers.workers)


def _witnessed(run: LiveRun) -> Witness:
    with _watched(run) as witness:

        def look() -> None:
            for name, parameter in run.model.named_parameters():
                if parameter.grad is not None:
                    witness.gradients[name] = checksum(parameter.grad)

        with rehearsing(run, look):
            run.train_step()
    return witness


@contextmanager
def _watched(run: LiveRun) -> Iterator[Witness]:
    """Hooks on every module and parameter, as long as the context lasts."""
    witness, current = Witness(), -1

    def begin(worker: int) -> None:
        nonlocal current
        current = worker

    def remember(batch: Batch) -> Batch:
        witness.memory = memory_of(run)
        return batch

    def output_of(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, given: Any, result: Any) -> None:
            tensor = result[0] if isinstance(result, tuple) and result else result
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                witness.outputs[current, name] = checksum(tensor)

        return hook

    def gradient_of(name: str) -> Callable[[Tensor], None]:
        def hook(gradient: Tensor) -> None:
            witness.contributions[current, name] = checksum(gradient)

        return hook

    def logits(module: nn.Module, given: Any, result: Tensor) -> None:
        largest = float(result.detach().float().abs().max())
        witness.largest_logit = max(witness.largest_logit, math.inf if math.isnan(largest) else largest)

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
        yield witness
