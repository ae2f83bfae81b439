"""Take the bias for an expert from the routers."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from rmetric.errors import UserError
from rmetric.monitor.loop_probes import PassHook
from rmetric.monitor.repair.context import StepContext
from rmetric.monitor.repair.policy import Decision, InterventionPolicy
from rmetric.network.structure import ExpertBlock, expert_blocks

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
                mean = context.votes.mean(self._sums[index] / self._tokens[index])
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
    own = getattr(router, "bias", None)
    logits = bias + own.float() if isinstance(own, Tensor) else bias
    for name in BIASES:
        own = getattr(router, name, None)
        if isinstance(own, Tensor):
            own.zero_()
    return float(logits.max() - logits.min())
