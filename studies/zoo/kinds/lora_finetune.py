"""Fine-tuning with low-rank adapters: most weights are frozen, and the loss begins where pretraining ended."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rmetric.live.run import LiveRunConfig
from studies.zoo.pretrained import other_domain, pretrained
from studies.zoo.schedules import linear
from studies.zoo.text import NextByteKind
from studies.zoo.training import Parts, register_kind


@register_kind("lora_finetune")
@dataclass(frozen=True, kw_only=True)
class LoraFinetune(NextByteKind):
    """Adapters of rank 4 on attention and feed-forward, on a text of another domain."""

    family = "fine-tuning"
    optimizer = "AdamW"
    why = "LoRA of peft: few trained weights, adapters that start at 0"
    config = LiveRunConfig(workers=1, rows=8, length=24, learning_rate=5e-3, warm_up_steps=30)
    text = staticmethod(other_domain)
    schedule = staticmethod(linear)

    def make(self, seed: int) -> Parts:
        from peft import LoraConfig, get_peft_model

        settings = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.05, target_modules=["into", "feed_forward.0"])
        model = get_peft_model(pretrained(), settings)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return Parts(model, torch.optim.AdamW(trained, weight_decay=0.0))
