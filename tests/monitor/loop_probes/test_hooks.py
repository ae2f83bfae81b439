"""Models that stay what they are under the hooks of probes, and probes that fail."""

from __future__ import annotations

import copy
import io
import logging
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.utils.hooks import warn_if_has_hooks

from rmetric.monitor.loop_probes import BatchProbe, StatisticsProbe, UpdateProbe
from tests.monitor.loop_invariants.common import Loop, Normalised


@pytest.mark.filterwarnings("ignore:.torch.jit.trace")
def test_a_model_can_be_copied_saved_and_used_elsewhere_and_has_no_hook_at_the_end() -> None:
    loop = Loop()
    twin = copy.deepcopy(loop.model)
    torch.save(loop.model, io.BytesIO())
    before = loop.monitor._run.measurer._batches
    twin(torch.ones(2, 8))
    assert before.measure() == {}  # the copy is not looked at
    compiled = torch.compile(loop.model, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2, 8)), loop.model(torch.ones(2, 8)))
    traced = torch.jit.trace(loop.model, torch.ones(2, 8))
    assert torch.equal(traced(torch.ones(3, 8)), loop.model(torch.ones(3, 8)))
    each = vmap(grad(lambda weights, x: functional_call(loop.model, weights, (x,)).sum()), (None, 0))
    each(dict(loop.model.named_parameters()), torch.ones(3, 8))
    loop.run(8)
    assert loop.monitor.step_number == 8
    assert not loop.model._forward_pre_hooks and not loop.model._forward_hooks
    assert not any(parameter._backward_hooks for parameter in loop.model.parameters())
    assert not loop.optimizer._optimizer_step_post_hooks  # type: ignore[attr-defined]


def test_a_file_of_a_model_that_is_watched_can_be_read_without_this_package() -> None:
    loop, file = Loop(), io.BytesIO()
    torch.save(loop.model, file)
    assert b"rmetric" not in file.getvalue()
    twin = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    assert torch.equal(twin(torch.ones(2, 8)), loop.model(torch.ones(2, 8)))
    again = copy.deepcopy(twin)
    assert torch.equal(torch.compile(again, backend="eager")(torch.ones(2, 8)), twin(torch.ones(2, 8)))


def test_a_model_that_is_sent_to_a_process_warns_of_no_hook() -> None:
    loop = Loop().go(2)
    once = loop.passes
    loop.passes = lambda: once() + once()  # type: ignore[method-assign]
    loop.go(2)
    assert all(parameter._backward_hooks for parameter in loop.model.parameters())
    for parameter in loop.model.parameters():
        warn_if_has_hooks(parameter)  # as torch does before it sends one
    loop.monitor.close()


def test_a_probe_that_fails_ends_itself_and_not_the_training(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> Tensor:
        raise RuntimeError("no sample of this")

    for module in ("batch", "update"):
        monkeypatch.setattr(f"rmetric.monitor.loop_probes.{module}.sample_of", fails)
    loop = Normalised().run(8)
    assert loop.monitor.step_number == 8
    ended = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    why = "are no longer looked at: RuntimeError: no sample of this"
    watched = (BatchProbe.watched, StatisticsProbe.watched, UpdateProbe.watched)
    assert sorted(ended) == sorted(f"{what} {why}" for what in watched)
