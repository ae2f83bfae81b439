"""Policies that change the training for a while: what they do, when, how often, and that it can be taken back."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from torch import nn

from rmetric.errors import UserError
from rmetric.live.models.attention import replaced_attention, wrapped_attention
from rmetric.live.models.structure import attentions, expert_blocks
from rmetric.live.run import LiveRun
from rmetric.monitor import repair
from rmetric.monitor.repair import (
    ClipGradients,
    LowerLearningRate,
    Policy,
    QkNormalisation,
    ResetRouterBias,
    SkipUpdate,
    SmoothSingularValues,
)
from rmetric.monitor.repair.model_policies import bound, bounded, reset_, smooth_
from rmetric.monitor.repair.policy import InterventionRule
from rmetric.monitor.repair.recompute_step import TokenBucket
from tests.helpers import ROOT
from tests.live.architectures import inputs_of, model_of
from tests.live.live import make_live_run, train, watched
from tests.monitor.common import Scheduled, batch_of
from tests.monitor.repair.common import Toy


def poisoned(toy: Toy, *steps: int, factor: float = 1e4) -> Toy:
    """Its gradients are too large in these steps, in every computation."""
    toy.corrupt = lambda computation: [p.grad.mul_(factor) for p in toy.model.parameters()]  # type: ignore
    toy.flip_in = dict.fromkeys(steps, 99)
    return toy


# -- skip, clip -------------------------------------------------------------------------------------------------------


def test_skipping_is_bounded_in_a_row_and_in_all() -> None:
    toy = poisoned(Toy(), *range(30, 40), factor=0.0)
    with toy.watch(policy=SkipUpdate(max_in_a_row=2)) as monitor:
        assert [step for step, made in enumerate(toy.train(33, monitor), 1) if not made] == [30, 31]
    toy = poisoned(Toy(), 30, 32, 34, 36, factor=0.0)
    with toy.watch(policy=SkipUpdate(max_interventions=3)) as monitor:
        assert [step for step, made in enumerate(toy.train(36, monitor), 1) if not made] == [30, 32, 34]


def test_an_unusual_step_is_skipped_only_where_asked() -> None:
    for certain, expected in ((True, []), (False, [30])):
        toy = poisoned(Toy(), 30)
        with toy.watch(policy=SkipUpdate(certain=certain)) as monitor:
            assert [step for step, made in enumerate(toy.train(31, monitor), 1) if not made] == expected


@pytest.mark.parametrize("norm", [None, 0.25])
def test_a_large_gradient_is_clipped_to_what_is_usual_or_given(norm: float | None) -> None:
    toy = poisoned(Toy(), 30)
    norms: list[float] = []
    toy.optimizer.register_step_pre_hook(
        lambda *_: norms.append(math.sqrt(sum(float(p.grad.square().sum()) for p in toy.model.parameters())))
    )
    with toy.watch(policy=ClipGradients(norm=norm)) as monitor:
        toy.train(30, monitor)
        [repair] = monitor.repairs
    assert (repair.step, repair.verdict) == (30, "clipped")
    assert norms[-1] == pytest.approx(repair.details["clipped_to"], rel=1e-4)
    assert norms[-1] == pytest.approx(norm or norms[-2], rel=0.5)


def test_what_is_not_finite_cannot_be_clipped() -> None:
    toy = poisoned(Toy(), 30, factor=math.inf)
    with toy.watch(policy=ClipGradients()) as monitor:
        toy.train(30, monitor)
        assert [repair.policy for repair in monitor.repairs] == ["RefuseUpdate"]


# -- lower learning rate ----------------------------------------------------------------------------------------------


def test_the_learning_rate_is_lower_for_some_updates_whatever_the_scheduler_does() -> None:
    toy = Toy(lr=0.1)
    seen: list[float] = []
    policy = LowerLearningRate(factor=0.5, steps=2, when=InterventionRule(on=("scheduled",)))
    with toy.watch(detectors=(Scheduled({1}),), policy=policy) as monitor:
        scheduler = torch.optim.lr_scheduler.ExponentialLR(toy.optimizer, 0.9)
        toy.optimizer.register_step_pre_hook(lambda optimizer, *_: seen.append(optimizer.param_groups[0]["lr"]))
        for step in range(1, 6):
            toy.train(1, monitor)
            assert toy.optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.9 ** (step - 1))
            scheduler.step()
        assert [(repair.step, repair.verdict) for repair in monitor.repairs] == [(2, "lowered")]
    factors = [rate / (0.1 * 0.9**index) for index, rate in enumerate(seen)]
    assert factors == pytest.approx([1.0, 0.5, 0.5, 1.0, 1.0])


def test_two_that_lower_the_learning_rate_give_it_back() -> None:
    toy, seen = Toy(lr=0.1), []
    policies = [
        LowerLearningRate(factor=0.5, steps=steps, when=InterventionRule(on=("scheduled",))) for steps in (1, 2)
    ]
    with toy.watch(detectors=(Scheduled({1}),), policy=policies) as monitor:
        toy.optimizer.register_step_pre_hook(lambda optimizer, *_: seen.append(optimizer.param_groups[0]["lr"]))
        for _ in range(5):
            toy.train(1, monitor)
            assert toy.optimizer.param_groups[0]["lr"] == 0.1
    assert seen == [0.1, 0.025, 0.05, 0.1, 0.1]


class RelativeSteps(torch.optim.SGD):
    """Works out the step of a group without a learning rate, as the Adafactor of transformers does."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.data.sub_((group["lr"] or 0.01) * parameter.grad)


def test_a_group_without_a_learning_rate_is_left_alone() -> None:
    toy = Toy(lr=0.1, kind=RelativeSteps)
    toy.optimizer.param_groups[0]["lr"] = None
    with pytest.raises(UserError, match="RelativeSteps has no learning rate that could be lowered"):
        toy.watch(policy=LowerLearningRate())
    toy.watch(policy=repair.GoBack()).close()  # which lowers none by default
    toy.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))], "lr": 0.1})
    policy = LowerLearningRate(factor=0.5, when=InterventionRule(on=("scheduled",)))
    with toy.watch(detectors=(Scheduled({1}),), policy=policy) as monitor:
        toy.train(3, monitor)
        assert [repair.verdict for repair in monitor.repairs] == ["lowered"]


@pytest.mark.parametrize("ends_with", ["a step", "close"])
def test_a_step_that_raises_keeps_no_learning_rate(ends_with: str) -> None:
    toy, policy = Toy(lr=0.1), LowerLearningRate(factor=0.5, when=InterventionRule(on=("scheduled",)))

    def out_of_memory() -> float:
        raise RuntimeError("out of memory")

    with toy.watch(detectors=(Scheduled({1}),), policy=policy) as monitor:
        toy.train(2, monitor)
        for _ in range(3):
            with pytest.raises(RuntimeError, match="out of memory"):
                toy.optimizer.step(out_of_memory)
            assert toy.optimizer.param_groups[0]["lr"] == 0.05
        if ends_with == "a step":
            toy.train(1, monitor)
            assert toy.optimizer.param_groups[0]["lr"] == 0.1
    assert toy.optimizer.param_groups[0]["lr"] == 0.1


def test_an_alarm_that_stays_lowers_it_after_some_steps() -> None:
    toy = poisoned(Toy(), 30, 31, 32, 33)
    with toy.watch(policy=LowerLearningRate(when=InterventionRule(patience=2))) as monitor:
        toy.train(33, monitor)
        assert [repair.step for repair in monitor.repairs] == [31]


def test_a_detectors_alert_makes_an_intervention() -> None:
    toy = poisoned(Toy(), 5, 6, factor=1e4)
    policy = LowerLearningRate(when=InterventionRule(on=("grad_norm",), most=1))
    with toy.watch(detectors=("grad_norm",), policy=policy) as monitor:
        toy.train(8, monitor)
        assert monitor.alerts == {"grad_norm": 5}
        assert [repair.step for repair in monitor.repairs] == [6]


def test_a_run_that_is_resumed_right_after_an_alert_has_its_intervention() -> None:
    def options() -> dict[str, Any]:
        return {
            "detectors": ("grad_norm",),
            "policy": LowerLearningRate(when=InterventionRule(on=("grad_norm",), most=1)),
        }

    toy = poisoned(Toy(), 5, factor=1e4)
    with toy.watch(**options()) as monitor:
        toy.train(5, monitor)
        state = monitor.state_dict()
    with toy.watch(**options()) as resumed:
        resumed.load_state_dict(state)
        assert resumed.last is not None and monitor.last is not None
        assert resumed.last.step == 5 and math.isnan(resumed.last.validation_loss)  # type: ignore[arg-type]
        toy.train(3, resumed)
        assert [repair.step for repair in resumed.repairs] == [6]


# -- singular values --------------------------------------------------------------------------------------------------


def test_only_the_top_of_the_spectrum_is_smoothed() -> None:
    torch.manual_seed(0)
    left, right = torch.linalg.qr(torch.randn(12, 8))[0], torch.linalg.qr(torch.randn(8, 8))[0]
    values = torch.tensor([40.0, 6.0, 1.0, 1.0, 0.9, 0.8, 0.5, 0.1])
    weight = (left * values) @ right
    limit = 1.2 * float(values.square().mean().sqrt())
    before, after = smooth_(weight, times=1.2)  # type: ignore[misc]
    found = torch.linalg.svdvals(weight)
    assert before == pytest.approx(40.0, rel=1e-4)
    assert after == pytest.approx(limit * (1 + math.log(40.0 / limit)), rel=1e-4)
    assert found[0] == pytest.approx(after, rel=1e-4)
    assert found[1:].tolist() == pytest.approx(values[1:].tolist(), rel=1e-3)


def test_a_flat_or_broken_matrix_is_left_alone() -> None:
    flat, broken = torch.eye(4), torch.full((3, 3), torch.nan)
    assert smooth_(flat, times=3.0) is None
    assert smooth_(broken, times=3.0) is None
    assert torch.equal(flat, torch.eye(4))


def test_experts_are_smoothed_one_by_one() -> None:
    experts = torch.stack([torch.diag(torch.tensor([9.0, 1.0, 1.0, 1.0])), torch.eye(4)])
    smooth_(experts, times=1.0)
    assert float(experts[0, 0, 0]) < 9.0
    assert torch.allclose(experts[1], torch.eye(4), atol=1e-6)


def test_matrices_of_the_layers_are_smoothed_after_the_update() -> None:
    run = make_live_run("tiny-moe")
    with watched(run, detectors=(Scheduled({1}),), policy=SmoothSingularValues(times=1.1, when=_at_once())) as monitor:
        train(run, 1)
        embedding = run.model.get_input_embeddings().weight.detach().clone()
        losses = train(run, 3)
        [repair] = monitor.repairs
    changed = repair.details["spectral_norms"]
    assert any("experts" in name for name in changed)
    assert not any(name.startswith(("lm_head", "model.embed")) for name in changed)
    assert all(after < before for before, after in changed.values())
    assert embedding.shape == run.model.get_input_embeddings().weight.shape
    assert all(map(math.isfinite, losses))


def _at_once() -> InterventionRule:
    return InterventionRule(on=("scheduled",), most=1)


# -- queries and keys -------------------------------------------------------------------------------------------------


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
    policy = QkNormalisation(max_logit=5.0, steps=2, when=_at_once())
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
    with watched(run, detectors=(Scheduled({1}),), policy=QkNormalisation(when=_at_once())) as monitor:
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


# -- routers ----------------------------------------------------------------------------------------------------------


def test_a_reset_router_prefers_no_expert_but_tells_tokens_apart() -> None:
    torch.manual_seed(0)
    router = nn.Linear(16, 4, bias=True)
    inputs = torch.randn(400, 16) + 3.0
    with torch.no_grad():
        router.weight[2] += 2.0
        router.bias[1] = 5.0
    weight = router.weight.detach().clone()
    spread = reset_(router, inputs.mean(0))
    after = router(inputs).detach()
    assert spread > 1.0
    assert float(after.mean(0).max() - after.mean(0).min()) < 1e-4
    centred = inputs - inputs.mean(0)
    across = centred - torch.outer(centred @ inputs.mean(0), inputs.mean(0)) / inputs.mean(0).square().sum()
    assert torch.allclose(across @ router.weight.detach().T, across @ weight.T, atol=1e-3)


def test_routers_are_reset_after_the_step_that_follows_the_intervention() -> None:
    run = make_live_run("tiny-moe")
    with watched(run, detectors=(Scheduled({1}),), policy=ResetRouterBias(when=_at_once())) as monitor:
        train(run, 1)
        train(run, 1)
        assert monitor.repairs == []
        assert all(block.router._forward_pre_hooks for block in expert_blocks(run.model))
        train(run, 1)
        assert not any(block.router._forward_pre_hooks for block in expert_blocks(run.model))
        [repair] = monitor.repairs
    assert set(repair.details["bias_spread"]) == {block.name for block in expert_blocks(run.model)}
    assert all(spread > 0 for spread in repair.details["bias_spread"].values())


def test_a_dense_model_is_refused() -> None:
    with pytest.raises(UserError, match="policy ResetRouterBias needs a mixture-of-experts model"):
        watched(make_live_run(), policy=ResetRouterBias())


# -- bounds -----------------------------------------------------------------------------------------------------------


def test_interventions_need_a_rest_and_have_an_end() -> None:
    toy = Toy()
    policy = LowerLearningRate(steps=1, when=InterventionRule(on=("scheduled",), rest=5, most=3))
    with toy.watch(detectors=(Scheduled(range(100)),), policy=policy) as monitor:
        toy.train(30, monitor)
        assert [repair.step for repair in monitor.repairs] == [2, 7, 12]


def test_a_budget_fills_slowly() -> None:
    budget = TokenBucket(share=0.1, burst=2)
    assert [budget.take() for _ in range(3)] == [True, True, False]
    for _ in range(11):
        budget.tick()
    assert [budget.take() for _ in range(2)] == [True, False]
    budget.give_back()
    assert budget.take()


def test_the_limits_of_a_resumed_run_are_those_that_it_is_given() -> None:
    policy = SkipUpdate(max_interventions=1)
    assert policy.allows(1) and not policy.allows(3)
    resumed = SkipUpdate(max_interventions=3)
    resumed.load_state_dict(policy.state_dict())
    assert [resumed.allows(step) for step in (5, 7, 9)] == [True, True, False]


def test_interventions_in_a_row() -> None:
    policy = SkipUpdate(max_interventions=5, max_in_a_row=2)
    assert [policy.allows(step) for step in (1, 2, 3, 4, 6, 7, 9, 11)] == [
        True, True, False, False, True, True, True, False
    ]  # fmt: skip


def test_a_policy_of_ones_own_that_fails_ends_the_repairs_only(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Policy):
        def inspect(self, context: Any) -> bool:
            return False

        def after_update(self) -> None:
            raise RuntimeError("no")

    toy, alone = Toy(), Toy()
    with toy.watch(policy=Broken()) as monitor:
        assert all(toy.train(5, monitor))
        assert monitor.enabled
        with_policies_ended = len(toy.optimizer._optimizer_step_post_hooks)
    with alone.watch() as monitor:
        alone.train(5, monitor)
        assert with_policies_ended == len(alone.optimizer._optimizer_step_post_hooks)
    assert all(torch.equal(a, b) for a, b in zip(toy.bits(), alone.bits(), strict=True))
    assert "after an update, RuntimeError: no" in caplog.text


def test_wrapping_is_undone_when_the_monitor_closes() -> None:
    run = make_live_run()
    with watched(run, detectors=(Scheduled({1}),), policy=QkNormalisation(when=_at_once())):
        train(run, 2)
    module = attentions(run.model)[0].module
    called = []
    with wrapped_attention([module], lambda inner, *a, **k: called.append(inner) or inner(*a, **k)):
        train(run, 1)
    assert all(not hasattr(inner, "func") for inner in called)  # nothing but the model's own function lies below


def test_the_policies_are_made_as_the_document_says() -> None:
    text = (ROOT / "docs" / "repair.md").read_text(encoding="utf-8")
    calls = re.findall(r"^\| `(\w+\(.*?\))` \|", text, re.M)
    assert len(calls) == 8
    for call in calls:
        name = call.partition("(")[0]
        policy = getattr(repair, name)
        assert repr(eval(call, {name: policy})) == repr(policy())  # the defaults stand in the table
