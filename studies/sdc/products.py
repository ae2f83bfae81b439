"""The matrix products of one worker's pass: which kernel, layer and tensor each belongs to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from rmetric.live.injection.flips import current_pass, is_product
from rmetric.live.run import LiveRun, NoObserver
from studies.sdc.plan import Stage, Target


class _NoUpdate(NoObserver):
    """Looks at a step and vetoes its update."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look = look

    def step(self, loss: Tensor, *, recompute: Callable[[], Tensor] | None = None) -> bool:
        self._look()
        return False


@contextmanager
def rehearsing(run: LiveRun, look: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Within the context ``run.train_step()`` does the next step without an update; afterwards it is undone.

    The number of the step, the random state and the scaler are as before, so that the same step can be done again: same
    batch, same random numbers. What an injection has changed in memory stays changed.

    Parameters
    ----------
    run
        Between two steps.
    look
        Called when the gradients of all workers are there and nothing has clipped them.
    """
    step, observer, random = run.step, run.observer, torch.get_rng_state()
    scaler, non_finite = run.scaler.state_dict(), run.non_finite_step
    run.observer = _NoUpdate(look)
    try:
        yield
    finally:
        run.observer, run.step, run.non_finite_step = observer, step, non_finite
        torch.set_rng_state(random)
        if scaler:
            run.scaler.load_state_dict(scaler)


KERNEL_OF = {
    "q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "output projection", "c_attn": "query, key, value",
    "gate_proj": "mlp", "up_proj": "mlp", "down_proj": "mlp", "c_fc": "mlp", "gate": "router", "router": "router",
    "experts": "experts", "lm_head": "lm_head", "embed_tokens": "embedding", "self_attn": "attention",
}  # fmt: skip
"""Last part of a module's name → kernel. The attention's own products are ``scores`` (queries × keys) and ``mixing``
(probabilities × values), the others of a norm ``norm``, all else ``other``."""
ATTENTION_PRODUCTS = ("scores", "mixing")
BIASED = ("aten::addmm", "aten::baddbmm")
"""Products whose factors come after what is added to them."""


@dataclass(frozen=True)
class Product:
    """One matrix product of one worker's pass."""

    stage: Stage
    call: int
    """Number among the products of its pass, from 0."""
    target: Target
    kernel: str
    layer: int | None
    tensor: str
    """Name of the module in which it is computed; of a weight gradient: of the parameter."""
    elements: int
    dtype: torch.dtype
    seen_in: str = ""
    """Forward: the module that is finished next, whose output is the first that can show a flip."""
    reaches: frozenset[str] = frozenset()
    """Backward: the parameters whose gradients are computed from it."""


def kernel_of(name: str) -> str:
    """The kernel that a module or parameter belongs to.

    >>> kernel_of("model.layers.1.mlp.down_proj.weight"), kernel_of("model.layers.1.mlp.experts.down_proj")
    ('mlp', 'experts')
    """
    parts = [part for part in name.split(".") if part != "weight"]
    if "experts" in parts:  # the weights of all in one, named like those of a plain layer
        return "experts"
    for part in reversed(parts):
        if part in KERNEL_OF:
            return KERNEL_OF[part]
        if "norm" in part:
            return "norm"
    return "other"


def layer_of(name: str) -> int | None:
    """The decoder layer in a name.

    >>> layer_of("model.layers.1.mlp"), layer_of("lm_head")
    (1, None)
    """
    found = re.search(r"(?:^|\.)(?:layers|h)\.(\d+)(?:\.|$)", name)
    return int(found[1]) if found else None


def products_of(run: LiveRun) -> tuple[Product, ...]:
    """The products of a worker's forward and backward pass, in their order; the run is left as it is.

    Every worker does the same ones: the parts of a batch have one shape, and no kernel here depends on the values.
    """
    recorder, first = _Recorder(run.model), run.active_workers[0]
    with ExitStack() as stack:
        mode = stack.enter_context(ExitStack())

        def begin(worker: int) -> None:
            mode.close()
            if worker == first:
                mode.enter_context(recorder)

        stack.enter_context(recorder.following_modules())
        stack.enter_context(run.at("micro_batch", begin))
        stack.enter_context(run.at("gradients", mode.close))
        stack.enter_context(rehearsing(run))
        run.train_step()
    return tuple(recorder.products)


@dataclass
class _Forward:
    """A product of the forward pass, as long as its backward pass may come."""

    module: str
    kernel: str
    second: int
    """Address of the second factor: autograd keeps it for the backward pass."""
    first_edge: int
    """Number of the first factor among the inputs of the node."""


class _Recorder(TorchDispatchMode):
    """Notes every product of a pass and the module in which it is computed.

    A product of the backward pass belongs to the forward product whose node autograd is at (both carry the same
    sequence number), and is the gradient with regard to the operand that is not among its own operands.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._model = model
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._stack: list[str] = []
        self._forward: dict[int, _Forward] = {}
        self.products: list[Product] = []
        self._unseen: list[int] = []
        self._entered = False

    def __enter__(self) -> _Recorder:
        self._entered = True
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered = False
        super().__exit__(*error)

    @contextmanager
    def following_modules(self) -> Iterator[None]:
        """Know at any time which module computes."""
        with ExitStack() as stack:
            for name, module in self._model.named_modules():
                stack.callback(module.register_forward_pre_hook(self._begins(name)).remove)
                stack.callback(module.register_forward_hook(self._ends(name)).remove)
            yield

    def _begins(self, name: str) -> Callable[[nn.Module, Any], None]:
        def hook(module: nn.Module, given: Any) -> None:
            self._stack.append(name)

        return hook

    def _ends(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, given: Any, result: Any) -> None:
            self._stack.pop()
            for index in self._unseen if self._entered else ():
                self.products[index] = replace(self.products[index], seen_in=name)
            self._unseen = []

        return hook

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not is_product(func):
            return func(*args, **(kwargs or {}))
        first = 1 if func._schema.name in BIASED else 0
        factors = [value.data_ptr() for value in args[first : first + 2]]
        sequence = torch._C._autograd._get_sequence_nr() - 1  # of the node that autograd has just made
        result = func(*args, **(kwargs or {}))
        if current_pass() == "forward":
            self._note_forward(sequence, factors[1], first, result)
        else:
            self._note_backward(factors, result)
        return result

    def _note_forward(self, sequence: int, second: int, first_edge: int, result: Tensor) -> None:
        module = self._stack[-1] if self._stack else ""
        kernel = kernel_of(module)
        if kernel == "attention":
            earlier = sum(product.tensor == module for product in self.products)
            kernel = ATTENTION_PRODUCTS[earlier] if earlier < len(ATTENTION_PRODUCTS) else "other"
        self._forward[sequence] = _Forward(module, kernel, second, first_edge)
        self._unseen.append(len(self.products))
        self._add("forward", "output", kernel, module, result)

    def _note_backward(self, factors: list[int], result: Tensor) -> None:
        node = torch._C._current_autograd_node()
        forward = None if node is None else self._forward.get(node._sequence_nr())
        if node is None or forward is None:
            self._add("backward", "input_gradient", "other", "", result)
            return
        of_second = forward.second not in factors
        edge = node.next_functions[forward.first_edge + of_second][0]
        reached = _parameters_behind(edge, self._names)
        if _is_weight(edge):
            (weight,) = reached
            self._add("backward", "weight_gradient", forward.kernel, weight, result, reaches=reached)
        else:
            self._add("backward", "input_gradient", forward.kernel, forward.module, result, reaches=reached)

    def _add(self, stage: Stage, target: Target, kernel: str, tensor: str, result: Tensor, **more: Any) -> None:
        call = sum(product.stage == stage for product in self.products)
        self.products.append(
            Product(stage, call, target, kernel, layer_of(tensor), tensor, result.numel(), result.dtype, **more)
        )


PASSING = ("AccumulateGrad", "TBackward", "TransposeBackward", "ToCopyBackward", "ViewBackward", "PermuteBackward")
"""Nodes between a weight and its product: it is transposed, cast, viewed."""


def _is_weight(node: Any) -> bool:
    """Return whether nothing but a change of view or type lies between a gradient and its parameter."""
    while node is not None and node.name().split("::")[-1].startswith(PASSING):
        if hasattr(node, "variable"):
            return True
        node = node.next_functions[0][0]
    return False


def _parameters_behind(node: Any, names: dict[int, str]) -> frozenset[str]:
    """Names of the parameters that a gradient flows to."""
    found, seen, waiting = set(), set(), [node]
    while waiting:
        current = waiting.pop()
        if current is None or current in seen:
            continue
        seen.add(current)
        if hasattr(current, "variable"):
            found.add(names[id(current.variable)])
        waiting += [following for following, _ in current.next_functions]
    return frozenset(found)
