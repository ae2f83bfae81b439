"""Where a step went wrong, from the difference between its two computations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rmetric.training.sdc.plan import Injection, Stage
from rmetric.training.sdc.products import Product, layer_of
from rmetric.training.sdc.witness import Evidence

Key = TypeVar("Key")


@dataclass(frozen=True)
class Diagnosis:
    """The place that fits the difference."""

    stage: Stage | None
    """None: both computations agree, in memory too; there is nothing to be seen."""
    workers: tuple[int, ...] = ()
    """Whose passes differ; none for what happened outside of them."""
    tensors: tuple[str, ...] = ()
    """Modules or parameters that explain the difference equally well, in forward order."""

    @property
    def visible(self) -> bool:
        """Whether anything differed."""
        return self.stage is not None

    @property
    def layers(self) -> tuple[int | None, ...]:
        """The decoder layers of the tensors, each once."""
        return tuple(dict.fromkeys(layer_of(name) for name in self.tensors))


def localise(evidence: Evidence, products: Sequence[Product]) -> Diagnosis:
    """Name the place.

    1. Memory that is not what it was when the last step ended: that tensor. (Recomputing it agrees with itself.)
    2. Outputs of modules that differ: the forward pass of that worker; the products between the last module that agrees
       and the first that does not.
    3. Gradients of a worker that differ: its backward pass. One tensor: the product of that weight's gradient, or the
       payload, which look the same. Several: the products whose gradient flows to these parameters and to no others,
       or to those that differ least from them (a small difference may be rounded away on the way).
    4. Only the sums differ: the gradient in memory.

    Parameters
    ----------
    evidence
        Of the step.
    products
        Of a pass of the healthy model: :func:`rmetric.training.sdc.products.products_of`.
    """
    struck, again = evidence.struck, evidence.again
    changed = _differing(evidence.stored, struck.memory)
    if changed:
        return Diagnosis("memory", tensors=tuple(_without_state(name) for name in changed))
    outputs = _differing(struck.outputs, again.outputs)
    if outputs:
        first = outputs[0][1]
        tensors = [item.tensor for item in products if item.stage == "forward" and item.seen_in == first]
        return Diagnosis("forward", _workers(outputs), tuple(dict.fromkeys(tensors)) or (first,))
    contributions = _differing(struck.contributions, again.contributions)
    if contributions:
        return Diagnosis("backward", _workers(contributions), _behind({name for _, name in contributions}, products))
    sums = _differing(struck.gradients, again.gradients)
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


def _without_state(name: str) -> str:
    """A parameter's name without that of what the optimizer remembers of it."""
    return name.removesuffix(".exp_avg_sq").removesuffix(".exp_avg")


@dataclass(frozen=True)
class Marks:
    """A diagnosis against the truth; None: the injection has no such thing, or nothing was to be seen."""

    visible: bool
    worker: bool | None
    layer: bool | None
    tensor: bool | None
    """Whether the true tensor is among those named."""
    named: int
    """How many tensors were named."""


def marked(diagnosis: Diagnosis, truth: Injection) -> Marks:
    """Score a diagnosis."""
    if not diagnosis.visible:
        return Marks(False, None, None, None, 0)
    worker = None if truth.worker is None else diagnosis.workers == (truth.worker,)
    layer = diagnosis.layers == (truth.layer,)
    return Marks(True, worker, layer, truth.tensor in diagnosis.tensors, len(diagnosis.tensors))
