"""Bits that flip without anybody being told."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from rmetric.architectures import Architecture
from rmetric.errors import UserError
from rmetric.faults.base import Fault, register_fault
from rmetric.faults.processes import BoolsRT, RunProcesses
from rmetric.faults.response import BREAKS_GRADIENT, effect_of, fates, respond
from rmetric.streams import RunStreams

if TYPE_CHECKING:
    from rmetric.live.run import LiveRun

Target = Literal["weight", "gradient", "activation", "matmul", "optimizer"]
Persistence = Literal["transient", "recurring", "permanent"]
Stage = Literal["forward", "backward"]
FLOAT32_BITS = 32
LOWEST_EXPONENT_BIT = 23


@register_fault("SILENT_DATA_CORRUPTION")
@dataclass(frozen=True, kw_only=True)
class SilentDataCorruption(Fault):
    """A bit flips in a weight, or now and then in a gradient.

    A bit of the mantissa changes nothing that can be seen. The top bit of the exponent of a gradient makes its norm
    infinite for a step, which is skipped. The same bit of a weight ruins the model at once: as a rule it answers every
    token alike from then on.

    A live run flips a real bit of a real tensor and notes the place. ``low``: a bit of the mantissa of a weight, once.
    ``medium``: the top bit of the exponent in one gradient, now and then: under clipping each of these steps is lost,
    and the loss stays normal. ``high``: the same bit of one weight in a layer, once, which as a rule is the end: the
    weight becomes about 1e36, and the model answers every token alike or gets infinite gradients from then on.
    """

    source = "Altenbernd, Wiesner, Kao 2026, arXiv 2604.00726; real sample runs with flipped bits"
    severities = {
        "low": {"bit": 20},
        "medium": {"target": "gradient", "persistence": "recurring"},
        "high": {},
    }
    at_least = {"flips_per_step": 0.0}
    at_most = {"flips_per_step": 1.0}
    one_of = {
        "target": get_args(Target),
        "persistence": get_args(Persistence),
        "stage": get_args(Stage),
    }

    flips_per_step: float = 0.08
    """Probability of a flip in a step after the onset, where they recur."""
    target: Target = "weight"
    """Target of a live run's flip: a parameter (before the forward pass), the gradient of one (after all backward
    passes), the output of a module (``activation``) or of a linear layer (``matmul``) in one worker's forward pass, or
    a tensor of the optimizer's state."""
    bit: int = 30
    """Bit of a float32 number: 0 to 22 mantissa, 23 to 30 exponent, 31 sign. In other types the bit that does the
    same: the 16-bit types have bit 30 too, but lack the lowest ones."""
    persistence: Persistence = "transient"
    """``transient``: once, at the onset. ``recurring``: also in later steps, with probability ``flips_per_step`` each,
    in another element of the same tensor. ``permanent``: the bit of that one element is stuck at the flipped value."""
    tensor: str = ""
    """Part of the name of the parameter or module, ``*`` and ``?`` allowed, such as ``layers.1.*o_proj``; one is drawn
    of those that fit. Empty: drawn from the matrices, outputs or linear layers of the transformer's layers."""
    stage: Stage = "forward"
    """Pass of a ``matmul``: ``backward`` is the product that gives the gradient with regard to the layer's input."""

    def simulate(self, state: RunProcesses, active: BoolsRT, rng: RunStreams) -> None:
        effect = effect_of(self, state)
        respond(state, active, rng, effect)
        state.non_finite_gradients += self._hit(active, rng) & (fates(effect, rng) == BREAKS_GRADIENT)

    def _hit(self, active: BoolsRT, rng: RunStreams) -> BoolsRT:
        """Steps whose gradient goes through what is flipped."""
        if self.target == "weight":  # what is broken stays broken
            return active
        first: BoolsRT = active & (np.cumsum(active, axis=1) == 1)
        if self.persistence == "transient":
            return first
        return first | (active & (rng.random("flips") < self.flips_per_step))

    def dose(self, architecture: Architecture) -> float:
        """1: a bit that does no harm; 2: the gradient of a step; 3: a weight, the output of a layer, the optimizer."""
        if self.bit < LOWEST_EXPONENT_BIT:
            return 1.0
        return 2.0 if self.target == "gradient" else 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.bit < FLOAT32_BITS:
            raise UserError(
                f"{self.name} has no bit={self.bit}; choose 0 to 22 (mantissa), 23 to 30 (exponent), 31 (sign)"
            )
        if self.stage == "backward" and self.target != "matmul":
            raise UserError(f"{self.name} has stage=backward for target=matmul only, not for target={self.target}")

    def inject(self, training: LiveRun) -> AbstractContextManager[None]:
        from rmetric.live.injection.flips import flipping

        return flipping(training, self)
