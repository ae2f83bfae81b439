"""Gradients that grow until clipping cannot hold them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import count
from math import log
from typing import TYPE_CHECKING

import numpy as np

from rmetric.architectures import Architecture
from rmetric.errors import UserError
from rmetric.faults.base import Fault, register_fault
from rmetric.faults.processes import BoolsRT, RunProcesses
from rmetric.faults.response import effect_of, respond
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from torch.nn import Parameter

    from rmetric.live.run import LiveRun


@register_fault("GRADIENT_EXPLOSION")
@dataclass(frozen=True, kw_only=True)
class GradientExplosion(Fault):
    """Gradients are multiplied by a factor that ramps up to ``scale``.

    Simulated, the norm follows the ramp to the factor that real runs showed (one layer explodes, not all), and the loss
    rises as it did there.

    A live run multiplies the gradients of one layer, before they are seen or clipped. What follows depends on the
    optimizer. AdamW divides by the size of the gradients: without clipping it absorbs the factor and nearly nothing is
    lost. With clipping the other layers' gradients shrink by the factor and these layers all but stop to learn (tiny
    Llama, 150 steps: 4 to 5 % excess at ``low``, 7 to 9 % at ``medium``, 9 to 10 % at ``high``; below 2 % unclipped).
    """

    source = "Pascanu et al. 2013, arXiv 1211.5063; harmless under clipping, fatal without, in the real sample runs"
    severities = {
        "low": {"scale": 10.0, "duration_steps": 100},
        "medium": {},
        "high": {"scale": 1000.0, "ramp_steps": 10},
    }
    at_least = {"ramp_steps": 1}
    above = {"scale": 0.0}

    scale: float = 100.0
    """Final factor on the gradient of one layer."""
    ramp_steps: int = 40
    """Steps until the factor is reached (geometric ramp)."""
    layer: int | None = None
    """The layer of a live run whose gradients explode, from 0; −1 is the last. None: drawn at the onset."""

    def simulate(self, state: RunProcesses, active: BoolsRT, rng: RunStreams) -> None:
        effect = effect_of(self, state)
        final = effect["grad_norm_lasting"]
        unramped = {f"grad_norm_{when}": np.ones_like(final) for when in ("onset", "early", "lasting")}
        respond(state, active, rng, {**effect, **unramped})
        progress = np.minimum(np.cumsum(active, axis=1) / self.ramp_steps, 1.0) * active
        # Only a part of the norm is the exploding layer's; it takes over as its factor grows.
        grown = np.expm1(progress * log(self.scale)) / max(self.scale - 1.0, 1e-9)
        state.gradient_factor *= 1.0 + (final - 1.0) * grown

    def dose(self, architecture: Architecture) -> float:
        return max(0.0, log(self.scale))

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        import torch

        name, parameters = self._exploding(training)
        steps = count(1)

        def multiply() -> None:
            step = next(steps)
            if step == 1:
                training.observer.note(
                    "CORRUPTION", step=training.step, fault=self.name, tensor=f"{name}.*", final_factor=self.scale
                )
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            torch._foreach_mul_(gradients, self.scale ** min(step / self.ramp_steps, 1.0))

        return training.at("gradients", multiply)

    def _exploding(self, training: LiveRun) -> tuple[str, list[Parameter]]:
        """Name of the layer and those of its parameters that are trained."""
        from rmetric.network.structure import decoder_layers, model_name

        layers = decoder_layers(training.model)
        if not layers:
            raise UserError(
                f"fault {self.name} needs a transformer with layers, and {model_name(training.model)} has none"
            )
        last = len(layers) - 1
        index = int(training.rng(f"{self.name}/layer").integers(last + 1)) if self.layer is None else self.layer
        if not -last - 1 <= index <= last:
            raise UserError(f"fault {self.name} cannot be brought upon layer {index}; choose 0 to {last}, or -1")
        layer = layers[index]
        trained = [parameter for parameter in layer.module.parameters() if parameter.requires_grad]
        if not trained:
            raise UserError(
                f"nothing in {layer.name} is trained, so its gradients cannot explode; choose another layer"
            )
        return layer.name, trained
