"""What holds for every fault that changes how a model computes, and not its weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rmetric.live.corpus import Corpus
from rmetric.live.run import LanguageModelRun, LiveRunConfig
from tests.live.architectures import model_of

MakeRun = Callable[..., LanguageModelRun]
"""What the fixtures ``make_run`` and ``twin_of`` are."""


def run_of(name: str, text: Corpus, **config: Any) -> LanguageModelRun:
    """A run of one of :mod:`tests.live.architectures`, which have experts and norms of other kinds too."""
    model = model_of(name)
    settings = {"rows": 4, "length": 16, "workers": 2, "warm_up_steps": 2, **config}
    return LanguageModelRun(model, torch.optim.AdamW(model.parameters()), text, LiveRunConfig(**settings))


def logits_of(run: LanguageModelRun) -> Tensor:
    """What the model says about some held-out tokens."""
    ids = torch.from_numpy(run.corpus.held_out_batch("test", 4, 16))
    with torch.no_grad():
        return run.model.eval()(ids).logits


def assert_named(run: LanguageModelRun, told: list[dict[str, Any]], fault: str) -> dict[str, Any]:
    """That the log says once where the fault is; returns what it says."""
    (note,) = told
    assert note["event"] == "CORRUPTION"
    assert note["fault"] == fault
    for name in note["modules"]:
        run.model.get_submodule(name)
    return note
