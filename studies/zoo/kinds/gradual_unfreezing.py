"""Fine-tuning in which the layers join one after the other, from the last to the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from rmetric.live.run import LiveRunConfig
from studies.zoo.pretrained import other_domain, pretrained
from studies.zoo.text import NextByteKind
from studies.zoo.training import Examples, KindRun, Parts, register_kind

STEPS_A_STAGE = 300


@register_kind("gradual_unfreezing")
@dataclass(frozen=True, kw_only=True)
class GradualUnfreezing(NextByteKind):
    """The head alone, then one block more every 300 steps, then all (Howard, Ruder 2018, section 3.3)."""

    family = "fine-tuning"
    optimizer = "AdamW"
    zoo = "zoo_2"
    why = "layers are unfrozen every 300 steps: gradient norm and number of trained weights grow in stairs"
    config = LiveRunConfig(workers=1, rows=8, length=24, learning_rate=2e-3, warm_up_steps=20)
    text = staticmethod(other_domain)

    def make(self, seed: int) -> Parts:
        model = pretrained()
        return Parts(model, torch.optim.AdamW(model.parameters(), weight_decay=0.01))

    def before_step(self, run: KindRun, batch: Examples) -> None:
        model: Any = run.model
        stages = [[model.last, model.head], [model.blocks[1]], [model.blocks[0]], [model.tokens, model.places]]
        for stage, modules in enumerate(stages):
            for module in modules:
                module.requires_grad_(run.step >= stage * STEPS_A_STAGE)
