"""Policies that change the model: bound queries and keys, compress large singular values, reset router biases."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rmetric.errors import UserError
from rmetric.live.models.attention import AttentionFunction, wrapped_attention
from rmetric.live.models.structure import ExpertBlock, attentions, expert_blocks, layer_stacks, unwrapped
from rmetric.monitor.loop_probes import PassHook
from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.repair.policy import Decision, InterventionPolicy


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


@dataclass(kw_only=True)
class SmoothSingularValues(InterventionPolicy):
    r"""Smooths the top of the singular spectrum of the weight matrices, after the update of a suspicious step.

    With singular values :math:`s_i` of a matrix, r the root of their mean square and c = ``times`` · r,

    .. math:: s_i \leftarrow c\,(1 + \ln(s_i / c)) \quad\text{where } s_i > c

    continuous and once differentiable at c; smaller values, and all singular vectors, stay as they are. The top values
    become logarithmically less extreme, the order of the values is kept, and a matrix whose spectrum is flat is not
    changed at all. A matrix that is not finite is left alone.

    Taken are the matrices of the layers of all stacks (each expert by itself), or all matrices of a model without such
    layers; embeddings and the output layer are not.

    **Source:** the idea, and that it restores trainability even after a failure: H. Cao et al. 2026, arXiv 2602.01308:
    the gradient norm is bounded by the top singular values of the weights, which grow with the updates.
    **Deviation:** the formula is this project's working definition, not theirs. The optimizer's state is left as it is.
    """

    times: float = 3.0
    """c in units of the root mean square of the singular values."""
    _model: nn.Module | None = field(init=False, repr=False, default=None)
    _due: StepContext | None = field(init=False, repr=False, default=None)

    def attach(self, model: nn.Module, optimizer: Optimizer) -> None:
        if any(hasattr(parameter, "to_local") for parameter in model.parameters()):
            raise UserError("SmoothSingularValues needs whole matrices; it does not serve a model under fully_shard")
        self._model = model

    def intervene(self, context: StepContext) -> Decision:
        self._due = context
        return Decision.PASS

    def after_update(self) -> None:
        if self._due is None or self._model is None:
            return
        context, self._due = self._due, None
        changed = {}
        for name, parameter in _matrices(self._model):
            largest = smooth_(parameter.detach(), self.times)
            if largest is not None:
                changed[name] = list(largest)
        context.report(self, "smoothed", details={"spectral_norms": changed})

    def close(self) -> None:
        self._model = self._due = None


def _matrices(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Matrices by name; one of three dimensions holds one matrix an expert."""
    prefixes = tuple(f"{layer.name}." for stack in layer_stacks(model) for layer in stack)
    named = [(name, item) for name, item in unwrapped(model).named_parameters() if item.requires_grad]
    return [(name, item) for name, item in named if item.ndim in (2, 3) and name.startswith(prefixes or ("",))]


@torch.no_grad()
def smooth_(matrix: Tensor, times: float) -> tuple[float, float] | None:
    """Smooth in place; returns the spectral norm before and after, ``None`` if nothing had to be done.

    >>> weight = torch.diag(torch.tensor([10.0, 1.0, 1.0, 1.0]))
    >>> [round(value, 2) for value in smooth_(weight, times=1.0)]
    [10.0, 8.52]
    """
    if not bool(torch.isfinite(matrix).all()):
        return None
    left, values, right = torch.linalg.svd(matrix.float(), full_matrices=False)
    limit = times * values.square().mean(-1, keepdim=True).sqrt()
    smoothed = torch.where(values > limit, limit * (1.0 + (values / limit).log()), values)
    if torch.equal(smoothed, values):
        return None
    # only the top is replaced, so that what lies below keeps its bits as far as it can
    matrix.add_(((left * (smoothed - values).unsqueeze(-2)) @ right).to(matrix.dtype))
    before, after = float(values.max()), float(smoothed.max())
    return (before, after) if math.isfinite(after) else None


BIASES = ("bias", "e_score_correction_bias")
"""Names of a router's bias in transformers."""


@dataclass(kw_only=True)
class ResetRouterBias(InterventionPolicy):
    r"""Takes from each router what prefers an expert whatever the token is.

    A router without a bias parameter has one in effect: with logits :math:`R x` and the mean input :math:`\bar x` of
    the tokens of a step, :math:`b = R \bar x`, one number an expert. After the update

    .. math:: R \leftarrow R - (b - \mathrm{mean}\,b)\,\bar x^\top / \lVert\bar x\rVert^2

    so that all experts have the same mean logit, while what tells one token from another is unchanged:
    :math:`R (x - \bar x)` moves only along the mean direction. Bias parameters and buffers are set to 0.

    The mean input is measured in the forward passes of the next step, by a hook on each router that
    is there for this step only; the reset follows that step's update.

    **Deviation:** no published recipe is followed; the definition is this project's own.
    """

    _blocks: list[ExpertBlock] = field(init=False, repr=False, default_factory=list)
    _sums: dict[int, Tensor] = field(init=False, repr=False, default_factory=dict)
    _tokens: dict[int, int] = field(init=False, repr=False, default_factory=dict)
    _stack: ExitStack = field(init=False, repr=False, default_factory=ExitStack)
    _due: StepContext | None = field(init=False, repr=False, default=None)
    _measured: bool = field(init=False, repr=False, default=False)

    def attach(self, model: nn.Module, optimizer: Optimizer) -> None:
        if any(hasattr(parameter, "to_local") for parameter in model.parameters()):
            raise UserError("ResetRouterBias needs whole routers; it does not serve a model under fully_shard")
        self._blocks = expert_blocks(model, "policy ResetRouterBias")

    def intervene(self, context: StepContext) -> Decision:
        self._due = context
        self._sums, self._tokens = {}, {}
        self._stack.close()
        for index, block in enumerate(self._blocks):
            handle = block.router.register_forward_pre_hook(PassHook(self._watcher(index)))
            self._stack.callback(handle.remove)
        return Decision.PASS

    def _watcher(self, index: int) -> Any:
        def add(module: nn.Module, given: tuple[Any, ...]) -> None:
            if module.training and given:
                inputs = given[0].detach().reshape(-1, given[0].shape[-1]).float()
                self._sums[index] = self._sums.get(index, 0.0) + inputs.sum(0)
                self._tokens[index] = self._tokens.get(index, 0) + len(inputs)

        return add

    @torch.no_grad()
    def after_update(self) -> None:
        if self._due is None or not self._sums:
            return
        context, self._due = self._due, None
        self._stack.close()
        biases = {}
        for index, block in enumerate(self._blocks):
            if index in self._sums:
                mean = context.mean_over_processes(self._sums[index] / self._tokens[index])
                biases[block.name] = reset_(block.router, mean)
        context.report(self, "reset", details={"bias_spread": biases})

    def close(self) -> None:
        self._stack.close()
        self._blocks, self._due = [], None


@torch.no_grad()
def reset_(router: nn.Module, mean: Tensor) -> float:
    """Take the effective bias out, in place; returns how far apart the experts' mean logits were (largest − smallest).

    ``mean`` is the mean input, shape (features,).
    """
    weight = router.weight
    assert isinstance(weight, Tensor)
    bias = weight.float() @ mean
    step = torch.outer(bias - bias.mean(), mean) / mean.square().sum().clamp_min(1e-12)
    weight.sub_(step.to(weight.dtype))
    for name in BIASES:
        own = getattr(router, name, None)
        if isinstance(own, Tensor):
            own.zero_()
    return float(bias.max() - bias.min())
