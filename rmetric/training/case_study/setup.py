"""The run that is forked: model, text, optimizer, as planned."""

from __future__ import annotations

import platform
from functools import lru_cache
from typing import Any

import torch
import transformers

from rmetric.errors import UserError
from rmetric.registry import load_plugin
from rmetric.training.case_study.plan import LORA, CaseStudyPlan
from rmetric.training.corpus import Corpus, standard_library
from rmetric.training.datasets import load_text_corpus, tokenized
from rmetric.training.live_run import LiveRun, LiveRunConfig
from rmetric.training.models import tiny_model

Parts = tuple[torch.nn.Module, Corpus, dict[str, Any], torch.dtype | None]
"""Model, text, what there is to say about the model, type of the forward pass where it is not the weights'."""


@lru_cache(maxsize=1)
def live_run(plan: CaseStudyPlan) -> tuple[LiveRun, dict[str, Any]]:
    """A fresh run as planned, one a process, and what there is to say about it."""
    for plugin in plan.plugins:
        load_plugin(plugin)
    device = device_of(plan.device)
    if device.type == "cpu":
        torch.set_num_threads(1)  # several processes share the cores, and sums come out the same in each
    model, corpus, described, autocast = _tiny(plan, device) if plan.tiny else _pretrained(plan, device)
    config = LiveRunConfig(
        seed=plan.seed,
        rows=plan.batch_rows,
        length=plan.sequence_length,
        workers=plan.workers,
        learning_rate=plan.peak_learning_rate,
        autocast=autocast,
    )
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=plan.peak_learning_rate)
    description = {
        "model": plan.model,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "trainable_parameters": sum(parameter.numel() for parameter in trainable),
        **described,
        "dataset": corpus.name,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    return LiveRun(model, optimizer, corpus, config), description


def device_of(name: str) -> torch.device:
    """A device by torch's name for it; ``auto``: the GPU if there is one. :class:`UserError` if it is not to be had."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"the device {name!r} is not to be had here; choose --device cpu") from error
    return device


def _tiny(plan: CaseStudyPlan, device: torch.device) -> Parts:
    corpus = load_text_corpus(plan.dataset, None, length=plan.sequence_length) if plan.dataset else standard_library()
    model = tiny_model(plan.model, seed=plan.seed, context=max(plan.sequence_length, 64))
    model.to(device)  # type: ignore[arg-type]
    return model, corpus, {"dtype": "float32"}, None


def _pretrained(plan: CaseStudyPlan, device: torch.device) -> Parts:
    from rmetric.training.models.pretrained import (
        load_pretrained,  # peft and the hub's client, which a tiny model needs not
    )

    loaded = load_pretrained(
        plan.model,
        device=device,
        lora=LORA[plan.lora],
        rows=plan.batch_rows // plan.workers,
        length=plan.sequence_length,
        seed=plan.seed,
    )
    if plan.dataset:
        corpus = load_text_corpus(plan.dataset, loaded.tokenizer, length=plan.sequence_length)
    else:
        corpus = tokenized(standard_library(), loaded.tokenizer)
    autocast = None if loaded.compute_dtype == torch.float32 else loaded.compute_dtype
    return loaded.model, corpus, loaded.description, autocast
