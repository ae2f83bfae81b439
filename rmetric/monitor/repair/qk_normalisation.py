"""Bound queries and keys, and with them the attention logits."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.repair.policy import Decision, InterventionPolicy
from rmetric.network.attention import AttentionFunction, wrapped_attention
from rmetric.network.structure import attentions


@dataclass(kw_only=True)
class QkNormalisation(InterventionPolicy):
    r"""Puts an RMS norm with a ceiling on queries and keys, between the model and its attention function.

    A query or key vector x of D features becomes

    .. math:: x \cdot \min(1, l / \mathrm{rms}(x)), \qquad l = \sqrt{\texttt{max\_logit} / (D \cdot \text{scaling})}

    so that every logit, scaling · q·k, lies within ± ``max_logit``. Vectors that are small enough are not touched: a
    healthy model computes the same as before, and the policy can be taken off again at any time. It works behind the
    rotary embedding, which does not change a norm, and needs no change of a weight. From the next step
    on (this one is computed again with it where the training loop says how), in training and in evaluation, for
    ``steps`` steps or to the end.

    **Source:** QK normalisation as a mitigation: O. Kao (slides, TU Berlin); Henry et al. 2020, arXiv 2010.04245;
    Dehghani et al. 2023, arXiv 2302.05442.
    **Deviation:** a ceiling instead of a norm with learned gain, for a training that goes on must not become another
    model. Models whose attention is not one of transformers' cannot be served.
    """

    max_logit: float = 50.0
    """Largest attention logit."""
    steps: int | None = None
    """Updates until it is taken off; ``None``: never."""
    _model: nn.Module | None = field(init=False, repr=False, default=None)
    _left: int = field(init=False, repr=False, default=0)
    _stack: ExitStack = field(init=False, repr=False, default_factory=ExitStack)
    _on: bool = field(init=False, repr=False, default=False)

    def attach(self, model: nn.Module, optimizer: Optimizer) -> None:
        attentions(model, "policy QkNormalisation")  # so that a model that has none is refused here
        self._model = model

    def intervene(self, context: StepContext) -> Decision:
        self._left = self.steps or 0
        self._enter()
        if context.can_recompute:
            context.replace()
        context.report(self, "normalised", details={"max_logit": self.max_logit})
        return Decision.PASS

    def _enter(self) -> None:
        if self._on or self._model is None:
            return
        modules = [attention.module for attention in attentions(self._model)]
        self._stack.enter_context(wrapped_attention(modules, self._normalised))
        self._on = True

    def _normalised(
        self,
        inner: AttentionFunction,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        size = query.shape[-1]
        limit = bound(self.max_logit, size, options.get("scaling"))
        return inner(module, bounded(query, limit), bounded(key, limit), value, mask, **options)

    def after_update(self) -> None:
        if self._on and self.steps is not None:
            self._left -= 1
            if self._left <= 0:
                self._leave()

    def _leave(self) -> None:
        self._stack.close()
        self._on = False

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "on": self._on, "left": self._left}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._left = state["left"]
        if state["on"]:
            self._enter()

    def close(self) -> None:
        self._leave()
        self._model = None


def bound(max_logit: float, size: int, scaling: float | None) -> float:
    """Largest root mean square of a query or key of ``size`` features; ``scaling`` of None is 1/√size.

    >>> bound(50.0, 16, None)
    3.5355339059327378
    """
    limit: float = (max_logit / (size * (size**-0.5 if scaling is None else scaling))) ** 0.5
    return limit


def bounded(vectors: Tensor, limit: float) -> Tensor:
    """Scale vectors (last dimension) down to a root mean square of ``limit``; smaller ones keep every bit."""
    rms = vectors.float().square().mean(-1, keepdim=True).sqrt()
    return torch.where(rms > limit, (vectors * (limit / rms).to(vectors.dtype)), vectors)
