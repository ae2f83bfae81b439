"""Measure the routers of mixtures of experts: similarity of rows, entropy of choices, load of experts."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from rmetric.errors import UserError
from rmetric.monitor.loop_probes import PassHook, remove_hooks
from rmetric.monitor.mechanism.base import (
    DeviceArrays,
    HookGuard,
    HostArrays,
    MechanismMonitor,
    MonitorResult,
    Task,
    detached_copy,
    worst_of_each,
)
from rmetric.network.structure import ExpertBlock, expert_blocks

ROUNDED = 0.02
"""Rest in the sum of a token's probabilities that is rounding (half precision)."""


class Router(MechanismMonitor):
    """Watches the weights and choices of every router. Shapes: E experts, d features; R is the router's matrix, E × d.

    - ``router_similarity``: mean cosine of two different rows of R, in [−1/(E−1), 1]; the largest over layers.
    - ``router_conditioning``: condition number of R minus its mean row, which has rank E−1 at most: its largest
      singular value over its (E−1)th; the largest over layers. Beside it, in the details, the effective rank.
    - ``routing_entropy``: mean over tokens of −Σ p ln p / ln E, p the softmax over all experts; the smallest over
      layers.
    - ``expert_load_max``, ``expert_load_min``: share of the busiest and of the idlest expert in the (token, chosen
      expert) pairs, 1/E where all get the same; the extremes over layers.

    The last three are counted over all tokens that training saw in the sampled step, padding included; the entropy
    where the router hands out logits or probabilities of all experts, the loads where it says which experts it chose.

    **Source:** Huang et al. 2026, arXiv 2606.28116 (similarity, centered conditioning, per-token entropy).

    Parameters
    ----------
    model
        A transformers model whose layers have a router with a ``weight`` and experts in one module.

    Raises
    ------
    UserError
        For a dense model, or a router of no known form.
    """

    name: ClassVar[str] = "router"
    measures: ClassVar[tuple[str, ...]] = (
        "router_similarity", "router_conditioning", "routing_entropy", "expert_load_max", "expert_load_min",
    )  # fmt: skip

    def __init__(self, model: nn.Module) -> None:
        self._blocks = expert_blocks(model, "the monitor of routers")
        for block in self._blocks:
            weight = getattr(block.router, "weight", None)
            if not isinstance(weight, Tensor) or weight.shape[:1] != (block.count,) or hasattr(weight, "to_local"):
                raise UserError(f"the router of {block.name} has no whole weight with a row an expert; leave it out")
        self._choices = [_Choices(block) for block in self._blocks]
        self._handles: list[RemovableHandle] = []
        self._guard = HookGuard()

    def arm(self) -> None:
        self.disarm()
        self.restart()
        for block, choices in zip(self._blocks, self._choices, strict=True):
            self._handles.append(block.router.register_forward_hook(PassHook(self._guard.guarded(choices.look))))

    def restart(self) -> None:
        for choices in self._choices:
            choices.forget()

    def disarm(self) -> None:
        remove_hooks(self._handles)

    def take(self) -> Task | None:
        self._guard.check()
        weights = [detached_copy(block.router.weight) for block in self._blocks]  # type: ignore[arg-type]
        counts = [choices.counted() for choices in self._choices]
        return lambda: _measure(weights, counts)

    def summarise(self, found: HostArrays) -> MonitorResult:
        layers = [block.label for block in self._blocks]

        def where(index: tuple[int, ...]) -> str:
            return f"layer {layers[index[0]]}" + "".join(f", expert {expert}" for expert in index[1:])

        graded = {
            "router_similarity": "similarity",
            "router_conditioning": "conditioning",
            "routing_entropy": "routing_entropy",
            "expert_load_max": "load",
            "expert_load_min": "load",
        }
        measured = {name: (found[key], where) for name, key in graded.items() if key in found}
        return worst_of_each(measured, {"layers": layers, **found})


class _Choices:
    """Choices of one router in a step, counted on the device."""

    def __init__(self, block: ExpertBlock) -> None:
        self._count, self._top_k = block.count, block.top_k
        self.forget()

    def forget(self) -> None:
        self._entropy: Tensor | None = None
        self._load: Tensor | None = None
        self._tokens = 0

    @torch.no_grad()
    def look(self, router: nn.Module, args: Any, output: Any) -> None:
        """A forward hook of the router: its logits, and the experts it chose."""
        if not router.training:
            return
        logits, load = routing_of(output, self._count, self._top_k)
        if logits is not None:
            entropy = torch.special.entr(_probabilities(logits)).sum() / np.log(self._count)
            self._entropy = entropy if self._entropy is None else self._entropy + entropy
            self._tokens += logits.numel() // self._count
        if load is not None:
            self._load = load if self._load is None else self._load + load

    def counted(self) -> dict[str, Tensor]:
        """Mean entropy, and shares of the experts, (E,); what was not seen is left out."""
        entropy, load, tokens = self._entropy, self._load, self._tokens
        self.forget()
        found = {} if entropy is None else {"routing_entropy": entropy / tokens}
        return found if load is None else {**found, "load": load / load.sum()}


def _probabilities(logits: Tensor) -> Tensor:
    """Probabilities of all experts, (…, E); what a router hands out may be that already (DBRX)."""
    rows = logits.detach().float()
    already = (rows >= 0.0).all() & ((rows.sum(dim=-1) - 1.0).abs() < ROUNDED).all()
    return rows.where(already, rows.softmax(dim=-1))


def routing_of(output: Any, experts: int, top_k: int) -> tuple[Tensor | None, Tensor | None]:
    """Logits or probabilities of a router's output, (…, E), and how often it chose each expert, (E,).

    ``None`` instead of the first if it hands out only the weights of the chosen experts; instead of the second if it
    does not say: neither by integers (:func:`_load`), nor by scores in front of the logits that are 0 for all but
    ``top_k`` (Llama 4). NaN for numbers that turn out to say something else, of which the host learns later.
    """
    parts = [part for part in (output if isinstance(output, tuple) else (output,)) if _has_rows(part)]
    logits = [part for part in parts if part.is_floating_point() and part.shape[-1] == experts]
    integers = [part for part in parts if not part.is_floating_point()]
    if not integers and len(logits) == 2:
        chosen = (logits[0] != 0).reshape(-1, experts)
        return logits[1], _where(chosen.sum(dim=0), (chosen.sum(dim=1) <= top_k).all())
    first = next(iter(logits), None)
    tokens = None if first is None else first.shape[:-1]
    loads = (_load(part, tokens, experts, top_k) for part in integers)
    return first, next((load for load in loads if load is not None), None)


def _has_rows(part: Any) -> bool:
    """Whether a part of an output has a row a token: an auxiliary loss has none."""
    return isinstance(part, Tensor) and part.ndim > 0


def _load(chosen: Tensor, tokens: torch.Size | None, experts: int, top_k: int) -> Tensor | None:
    """How often each expert was chosen, (E,).

    Integers are numbers of experts, (…, top_k), or of the shape of the ``tokens`` where each goes to one expert; those
    out of range mark tokens that were dropped. Else they are a map of zeros and ones, (…, E). ``None`` for anything
    else, as the tokens that experts choose.
    """
    columns = chosen.shape[-1]
    numbered = columns == top_k or (top_k == 1 and chosen.shape == tokens)
    if numbered and chosen.dtype is not torch.bool:
        numbers = chosen.reshape(-1).long()
        counted = ((numbers >= 0) & (numbers < experts)).float()
        load = torch.zeros(experts, device=chosen.device)
        return load.scatter_add_(0, numbers.clamp(0, experts - 1), counted)
    if columns == experts:
        rows = chosen.reshape(-1, experts)
        return _where(rows.float().sum(dim=0), ((rows == 0) | (rows == 1)).all())
    return None


def _where(load: Tensor, known: Tensor) -> Tensor:
    """A load, or NaN: without waiting for the device."""
    return load.float().where(known, torch.nan)


@torch.no_grad()
def _measure(weights: list[Tensor], counts: list[dict[str, Tensor]]) -> DeviceArrays:
    """Every measurement of every layer; first dimension: layers."""
    rows = [{**router_geometry(weight), **count} for weight, count in zip(weights, counts, strict=True)]
    names = [name for name in rows[0] if all(name in row for row in rows)]
    found = {name: torch.stack([row[name].cpu() for row in rows]) for name in names}
    return {name: values for name, values in found.items() if name != "load" or bool(values.isfinite().all())}


def router_geometry(weight: Tensor) -> dict[str, Tensor]:
    """Similarity, centered conditioning and effective rank of a router's matrix (E, d); scalars.

    All rows alike: the conditioning is infinite and the effective rank NaN. Numbers that are not finite give NaN.
    """
    rows = weight.float() if weight.dtype is not torch.float64 else weight
    whole = rows.isfinite().all()
    rows = rows.where(whole, torch.zeros_like(rows))  # the decomposition would raise
    experts = rows.shape[0]
    similarity = (torch.nn.functional.normalize(rows, dim=1).sum(dim=0).square().sum() - experts) / (
        experts * (experts - 1)
    )
    rank = min(experts - 1, rows.shape[1])
    values = torch.linalg.svdvals(rows - rows.mean(dim=0))[:rank]
    shares = (values / values[0]).square()
    shares = shares / shares.sum()
    found = {
        "similarity": similarity,
        "conditioning": torch.where(values[-1] > 0, values[0] / values[-1], torch.inf),
        "effective_rank": torch.special.entr(shares).sum().exp(),
    }
    return {name: value.where(whole, torch.nan) for name, value in found.items()}
