"""The largest attention logit of a step."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from rmetric.monitor.guard import ends_alone
from rmetric.network.attention import masked_logits, unmasked_logits, watching, wrapped_attention
from rmetric.network.structure import attentions

CHUNK = 2**24
"""Logits that are in memory at one time, at most (one query of all rows and heads at least)."""


class AttentionLogits:
    """Watches the largest attention logit max over rows, heads, layers, queries i and keys j of ``scaling · qᵢ·kⱼ``.

    They are those behind a cap or a bias of positions where the model has one. Only keys that a query may look at count
    (causal, sliding-window and padding masks), and only forward passes in training mode, so that what is watched does
    not depend on how often somebody validates. The model's own attention is called unchanged. All stays on the device:
    nothing waits for it.

    ``chunk``: logits in memory at one time.

    **Source:** growth of attention logits as a sign of instability: Wortsman et al. 2023, arXiv 2309.14322.

    Raises
    ------
    UserError
        If the model's attention is of no known form.
    """

    watched = "the attention logits"

    def __init__(self, model: nn.Module, *, chunk: int = CHUNK) -> None:
        self._chunk = chunk
        self._largest: Tensor | None = None
        self.closed = False
        """Whether they are looked at no longer, after an error."""
        self._stack = ExitStack()
        modules = [attention.module for attention in attentions(model, "the maximum of the attention logits")]
        self._stack.enter_context(wrapped_attention(modules, watching(self._look)))

    def collect(self) -> Tensor | None:
        """The largest logit since the last call, a float32 scalar on the device; +∞ where one is not finite.

        None if no forward pass in training mode came in between.
        """
        largest, self._largest = self._largest, None
        return None if self.closed else largest

    def close(self) -> None:
        self._stack.close()

    @ends_alone
    def _look(
        self, module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, options: dict[str, Any]
    ) -> None:
        largest = largest_logit(module, query, key, mask, options, self._chunk)
        # layers of a model that is spread over several devices meet on that of the first
        self._largest = largest if self._largest is None else torch.maximum(self._largest, largest.to(self._largest))


@torch.no_grad()
def largest_logit(
    module: nn.Module, query: Tensor, key: Tensor, mask: Tensor | None, options: dict[str, Any], chunk: int
) -> Tensor:
    rows, heads, tokens, _ = query.shape
    step = max(1, chunk // (rows * heads * key.shape[2]))
    largest = query.new_full((), -torch.inf, dtype=torch.float32)
    for first in range(0, tokens, step):
        logits = unmasked_logits(query[:, :, first : first + step], key, options, first)
        logits = masked_logits(logits, module, mask, options, first, tokens)
        largest = torch.maximum(largest, logits.amax().float())
    return largest.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
