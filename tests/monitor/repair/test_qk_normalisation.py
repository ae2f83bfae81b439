"""Attention logits that are bounded, and small ones that are not touched."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from rmetric.errors import UserError
from rmetric.live.run import LiveRun
from rmetric.monitor.repair import QkNormalisation
from rmetric.monitor.repair.qk_normalisation import bound, bounded
from rmetric.network.attention import replaced_attention, wrapped_attention
from rmetric.network.structure import attentions
from tests.live.architectures import inputs_of, model_of
from tests.live.live import make_live_run, train, watched
from tests.monitor.common import Scheduled, batch_of
from tests.monitor.repair.common import Toy, at_once


def largest_logit(run: LiveRun) -> float:
    """Of one more forward pass of the current batch, behind every other wrapper."""
    found = []

    def look(inner: Any, module: nn.Module, query: torch.Tensor, key: torch.Tensor, *rest: Any, **options: Any) -> Any:
        keys = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
        found.append(float((query @ keys.transpose(-1, -2) * options["scaling"]).abs().max()))
        return inner(module, query, key, *rest, **options)

    modules = [attention.module for attention in attentions(run.model)]
    with replaced_attention(modules, look), torch.no_grad():
        run.model(input_ids=batch_of(run).input_ids)
    return max(found)


def test_logits_are_bounded_and_small_ones_untouched() -> None:
    run = make_live_run()
    with torch.no_grad():
        for attention in attentions(run.model):
            attention.query.module.weight.mul_(30.0)
            attention.key.module.weight.mul_(30.0)
    policy = QkNormalisation(max_logit=5.0, steps=2, when=at_once())
    with watched(run, detectors=(Scheduled({1}),), policy=policy) as monitor:
        train(run, 1)
        assert largest_logit(run) > 5.0
        train(run, 1)
        assert largest_logit(run) <= 5.0 * 1.001
        assert [repair.verdict for repair in monitor.repairs] == ["normalised"]
        train(run, 2)  # its time is over
        assert largest_logit(run) > 5.0


@pytest.mark.parametrize("part", ["self_attn", "encoder_attn"])
def test_logits_of_a_decoder_behind_an_encoder_are_bounded(part: str) -> None:
    model = model_of("bart")
    attention, largest = getattr(model.model.decoder.layers[2], part), []
    with torch.no_grad():
        attention.q_proj.weight.mul_(1000.0)

    def look(inner: Any, module: nn.Module, query: torch.Tensor, key: torch.Tensor, *rest: Any, **options: Any) -> Any:
        largest.append(float((query @ key.transpose(-1, -2) * options["scaling"]).abs().max()))
        return inner(module, query, key, *rest, **options)

    policy = QkNormalisation(max_logit=5.0)
    policy.attach(model, torch.optim.SGD(model.parameters()))
    with replaced_attention([attention], look), torch.no_grad():
        model(**inputs_of("bart"))
        policy.load_state_dict(policy.state_dict() | {"on": True})
        model(**inputs_of("bart"))
        policy.close()
    before, after = largest
    assert after <= 5.0 * 1.001 < before


def test_a_healthy_model_computes_the_same_with_bounded_logits() -> None:
    run, alone = make_live_run(), make_live_run()
    with watched(run, detectors=(Scheduled({1}),), policy=QkNormalisation(when=at_once())) as monitor:
        train(run, 1)
        losses = train(run, 4)
        assert len(monitor.repairs) == 1
    assert losses == train(alone, 5)[1:]


def test_the_bound_is_kept_to_rounding() -> None:
    vectors = torch.randn(3, 7, 16, generator=torch.Generator().manual_seed(0)) * 10.0
    limit = bound(20.0, 16, None)
    kept = bounded(vectors, limit)
    assert float((kept @ kept.transpose(-1, -2)).abs().max()) / 4.0 <= 20.0 * 1.0001
    assert torch.equal(bounded(vectors / 100.0, limit), vectors / 100.0)


def test_a_model_without_attention_is_refused() -> None:
    with pytest.raises(UserError, match="policy QkNormalisation needs attention"):
        Toy().watch(policy=QkNormalisation())


def test_wrapping_is_undone_when_the_monitor_closes() -> None:
    run = make_live_run()
    with watched(run, detectors=(Scheduled({1}),), policy=QkNormalisation(when=at_once())):
        train(run, 2)
    module = attentions(run.model)[0].module
    called = []
    with wrapped_attention([module], lambda inner, *a, **k: called.append(inner) or inner(*a, **k)):
        train(run, 1)
    assert all(not hasattr(inner, "func") for inner in called)  # nothing but the model's own function lies below
