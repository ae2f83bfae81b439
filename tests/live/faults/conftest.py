"""What the tests of the injected faults share: tiny live runs, and twins of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from rmetric.live.corpus import BYTES, Corpus, corpus_of
from rmetric.live.models import tiny_model
from rmetric.live.run import LanguageModelRun, LiveRun, LiveRunConfig
from tests.live.faults.classifier import ClassifierRun

SMALL = {"rows": 4, "length": 16, "workers": 2, "warm_up_steps": 2}


@pytest.fixture(scope="session")
def text() -> Corpus:
    """Something that can be learnt, the same on every machine."""
    lines = (f"{first} times {second} makes {first * second}.\n" for first in range(60) for second in range(60))
    return corpus_of("a table of products", np.frombuffer("".join(lines).encode(), dtype=np.uint8), BYTES)


@pytest.fixture
def make_run(text: Corpus) -> Callable[..., Any]:
    """``make_run("tiny-moe", seed=3, clip=math.inf)``: a fresh run; keywords are fields of :class:`LiveRunConfig`.

    ``make_run("classifier")`` is no language model.

    Two runs made alike are equal in every bit.
    """

    def make(model: str = "tiny-llama", **config: Any) -> LiveRun:
        if model == "classifier":
            return ClassifierRun(**config)
        network = tiny_model(model, seed=0)
        return LanguageModelRun(
            network, torch.optim.AdamW(network.parameters()), text, LiveRunConfig(**{**SMALL, **config})
        )

    return make


@pytest.fixture
def twin_of(make_run: Callable[..., Any]) -> Callable[..., Any]:
    """``twin_of(run, "tiny-moe", seed=3)``: another run, made like this, that goes on from its state."""

    def fork(run: LiveRun, model: str = "tiny-llama", **config: Any) -> Any:
        return make_run(model, **config).load_state_dict(run.state_dict())

    return fork
