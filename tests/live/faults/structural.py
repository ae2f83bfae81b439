"""What holds for every fault that changes how a model computes, and not its weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rmetric.faults import Fault
from rmetric.live.corpus import Corpus
from rmetric.live.run import LanguageModelRun, LiveRunConfig
from tests.live.architectures import model_of
from tests.live.faults.common import same_bits, trained

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


def traces(model: nn.Module) -> dict[str, Any]:
    """Everything by which something can hang on to a model beside its weights."""
    hooks = [name for name in vars(nn.Module()) if "hooks" in name]
    found: dict[str, Any] = {"attention": {name: ALL_ATTENTION_FUNCTIONS[name] for name in ALL_ATTENTION_FUNCTIONS}}
    for name, module in model.named_modules():
        found[f"{name}/hooks"] = {table: list(vars(module)[table] or ()) for table in hooks}
        found[f"{name}/attributes"] = {key: value for key, value in vars(module).items() if _plain(key, value)}
        found[f"{name}/names"] = sorted(vars(module))
    return found


def _plain(key: str, value: Any) -> bool:
    return key != "training" and isinstance(value, int | float | str | bool | None)


def assert_leaves_no_trace(
    run: LanguageModelRun, twin: LanguageModelRun, other_twin: LanguageModelRun, fault: Fault, steps: int = 3
) -> None:
    """Bring a fault upon a run and compare it with two twins of the same state, one of them trained meanwhile."""
    assert same_bits(run.state_dict(), twin.state_dict())
    logits_of(run)  # transformers puts hooks of its own at the first pass
    before, weights, said = traces(run.model), run.state_dict()["model"], logits_of(run)
    with fault.inject(run):
        during = logits_of(run)
        assert same_bits(run.state_dict()["model"], weights)
        assert not same_bits(during, said)
    assert same_bits(logits_of(run), said)
    assert traces(run.model) == before
    with fault.inject(run):
        trained(run, steps - 1)
        trained(twin, steps - 1)  # beside it, in the same process
        trained(run, 1)
        trained(twin, 1)
    trained(other_twin, steps)  # without any fault near
    assert traces(run.model) == before
    assert same_bits(twin.state_dict(), other_twin.state_dict())
    assert not same_bits(run.state_dict()["model"], twin.state_dict()["model"])
    twin.load_state_dict(run.state_dict())
    assert same_bits(logits_of(run), logits_of(twin))
    assert same_bits(trained(run, 2).state_dict(), trained(twin, 2).state_dict())


def assert_named(run: LanguageModelRun, told: list[dict[str, Any]], fault: str) -> dict[str, Any]:
    """That the log says once where the fault is; returns what it says."""
    (note,) = told
    assert note["event"] == "CORRUPTION"
    assert note["fault"] == fault
    for name in note["modules"]:
        run.model.get_submodule(name)
    return note
