"""Measure attention rows, logits, queries and keys in a small sample of a step."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from rmetric.monitor.mechanism.base import (
    HookGuard,
    HostArrays,
    MechanismMonitor,
    MonitorResult,
    Task,
    by_layer,
    layer_and_head,
    worst_of_each,
)
from rmetric.network.attention import masked_logits, unmasked_logits, watching, wrapped_attention
from rmetric.network.structure import attentions

ROWS = 2
"""Sequences of the sample: the first ones of the first forward pass."""
QUERIES = 16
"""Queries of the sample: the last ones, which look at the most keys."""
MEASURED = ("entropy", "logit_max", "query_norm", "key_norm")
"""What the sample of a layer has, head by head."""
OUT_OF_SIGHT = 1e4
"""Least amount that an additive mask takes off a logit."""


class AttentionRows(MechanismMonitor):
    """Sharpness of attention and lengths of queries and keys, over a few sequences and queries.

    - ``attention_entropy``: mean over the sampled queries of −Σ p ln p / ln n, p the attention row over the n > 1 keys
      that the query may look at (a sink of GPT-OSS is one of them); in [0, 1]; the smallest over heads and layers.
    - ``query_norm``, ``key_norm``: largest Euclidean norm of a sampled query and of a key of the sampled sequences, as
      they go into the product (rotated, normalised where the model does so); the largest over heads and layers.
    - ``attention_logit_max``: largest logit of the sample as the mask finds it, so capped where the model caps (Gemma
      2); the largest over heads and layers. It stands in the record unless all logits are looked at
      (``attention_logits=True``).

    The sample is taken from the first forward pass in training mode of a step: with gradient accumulation from its
    first micro-batch. The model's own attention is called unchanged.

    **Source:** attention entropy, query and key vectors: O. Kao, *Observability and Fault Tolerance for LLM training*
    (slides, TU Berlin); growth of logits: Wortsman et al. 2023, arXiv 2309.14322.

    Parameters
    ----------
    model
        A transformers model; it may be wrapped by ``DistributedDataParallel`` or peft.

    Raises
    ------
    UserError
        If the model's attention is of no known form or cannot be reached.
    """

    name: ClassVar[str] = "attention"
    measures: ClassVar[tuple[str, ...]] = ("attention_entropy", "query_norm", "key_norm", "attention_logit_max")

    def __init__(self, model: nn.Module) -> None:
        found = attentions(model, "the monitor of attention rows")
        self._layers = {attention.module: attention.label for attention in found}
        self._samples: dict[nn.Module, dict[str, Tensor]] = {}
        self._stack = ExitStack()
        self._guard = HookGuard()
        self._watch = watching(self._guard.guarded(self._look))
        with wrapped_attention(self._layers, self._watch):
            pass  # attention that cannot be reached is told at once

    def arm(self) -> None:
        self.disarm()
        self.restart()
        self._stack.enter_context(wrapped_attention(self._layers, self._watch))

    def restart(self) -> None:
        self._samples = {}

    def disarm(self) -> None:
        self._stack.close()

    def take(self) -> Task | None:
        self._guard.check()
        samples, self._samples = self._samples, {}
        if not samples:
            return None
        # a model need not call all of them: layers are dropped at random, a decoder works without its encoder
        called = [index for index, module in enumerate(self._layers) if module in samples]
        parts = [samples[module] for module in self._layers if module in samples]
        return lambda: _together(called, parts)

    def summarise(self, found: HostArrays) -> MonitorResult:
        labels = [*self._layers.values()]
        layers = [labels[int(index)] for index in found["layer"]]
        heads, key_heads = ([int(count) for count in found[name]] for name in ("heads", "key_heads"))
        head, key_head = layer_and_head(layers, heads), layer_and_head(layers, key_heads, "key head")
        entropy = found["entropy"]
        measured = {
            "query_norm": (found["query_norm"], head),
            "key_norm": (found["key_norm"], key_head),
            "attention_logit_max": (found["logit_max"], head),
            "attention_entropy": (np.ma.array(entropy, mask=np.isnan(entropy)), head),  # no row had a choice of keys
        }
        details = {name: by_layer(found[name], key_heads if name == "key_norm" else heads) for name in MEASURED}
        return worst_of_each(measured, {"layers": layers, **details})

    def _look(
        self, module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, options: dict[str, Any]
    ) -> None:
        if module not in self._samples:
            self._samples[module] = sample_of(module, query, key, mask, options)


def _together(called: list[int], parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The samples of some layers one after the other, which layers these are, and how many heads each has."""
    return {
        "layer": torch.tensor(called),
        "heads": torch.tensor([len(part["query_norm"]) for part in parts]),
        "key_heads": torch.tensor([len(part["key_norm"]) for part in parts]),
        **{name: torch.cat([part[name].cpu() for part in parts]) for name in MEASURED},
    }


@torch.no_grad()
def sample_of(
    module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, options: Mapping[str, Any]
) -> dict[str, Tensor]:
    """Measure each head in one layer's sample; shapes (query heads,), and (key heads,) for ``key_norm``."""
    query, key = query[:ROWS], key[:ROWS]
    mask = mask[:ROWS] if mask is not None and mask.shape[0] > 1 else mask
    total = query.shape[2]
    first = max(0, total - QUERIES)
    query = query[:, :, first:]
    bare = unmasked_logits(query, key, options, first).float()
    logits = masked_logits(bare, module, mask, options, first, total)
    seen = ~((bare - logits) >= OUT_OF_SIGHT)  # infinity minus infinity is a logit that was seen
    return {
        "entropy": _row_entropy(*_with_sink(logits, seen, options.get("s_aux"))).nanmean(dim=1),
        "logit_max": logits.masked_fill(~seen, -torch.inf).amax(dim=(0, 2, 3)),
        "query_norm": _lengths(query),
        "key_norm": _lengths(key),
    }


def _lengths(vectors: Tensor) -> Tensor:
    """Largest Euclidean norm of each head's vectors (B, H, T, D), in single precision at least: shape (H,)."""
    precise = torch.promote_types(vectors.dtype, torch.float32)
    largest: Tensor = torch.linalg.vector_norm(vectors, dim=-1, dtype=precise).amax(dim=(0, 2))
    return largest


def _with_sink(logits: Tensor, seen: Tensor, sink: Tensor | None) -> tuple[Tensor, Tensor]:
    """Logits and what is seen of them, (…, S + 1), with the logit of each head's sink, (H,), as one more key."""
    if sink is None:
        return logits, seen
    column = sink.to(logits).reshape(1, -1, 1, 1).expand(*logits.shape[:-1], 1)
    return torch.cat([logits, column], dim=-1), functional.pad(seen.expand_as(logits), (0, 1), value=True)


def _row_entropy(logits: Tensor, seen: Tensor) -> Tensor:
    """Entropy of each row in [0, 1], (heads, rows · queries); NaN for a row with one key, infinite for a broken one."""
    nats = torch.special.entr(logits.softmax(dim=-1)).sum(dim=-1)
    keys = seen.expand_as(logits).sum(dim=-1)
    broken = (logits.isnan() | logits.isposinf()).any(dim=-1)
    entropy = (nats / keys.log()).masked_fill(keys < 2, torch.nan).masked_fill(broken, torch.inf)
    rows: Tensor = entropy.transpose(0, 1).flatten(1)
    return rows
