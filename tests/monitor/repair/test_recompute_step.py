"""A suspicious step is computed again: what is repaired, what is told, and that nothing else changes."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rmetric.errors import UserError
from rmetric.faults import make_fault
from rmetric.log_reader import read_log
from rmetric.monitor import TrainingMonitor
from rmetric.monitor.repair import Policies, RecomputeStep, RepairRecord, SkipUpdate
from rmetric.monitor.repair.recompute_step import TokenBucket
from tests.live.live import make_live_run, train, watched
from tests.monitor.repair.common import DRAWS, Noisy, Toy, equal, same_to_the_last_bit, state_bits

HARMFUL = [
    ("tiny-llama", {"target": "gradient"}),
    ("tiny-llama", {"target": "gradient", "persistence": "recurring", "flips_per_step": 1.0}),
    ("tiny-llama", {"target": "matmul", "stage": "backward"}),
    ("tiny-moe", {"target": "matmul", "stage": "backward"}),
]


def unsupervised(steps: int, **options: Any) -> list[torch.Tensor]:
    toy = Toy(**options)
    toy.train(steps)
    return toy.bits()


# -- repaired to the last bit -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("model", "flip"), HARMFUL)
def test_a_repaired_run_is_its_twin_to_the_last_bit(model: str, flip: dict[str, Any]) -> None:
    twin = make_live_run(model, workers=2)
    train(twin, 22)
    expected = state_bits(twin)

    run = make_live_run(model, workers=2)
    with watched(run, policy=RecomputeStep()) as monitor:
        train(run, 20)
        with make_fault("SILENT_DATA_CORRUPTION", "high", **flip).inject(run):
            train(run, 2)
        repaired = [repair.step for repair in monitor.repairs if repair.verdict == "transient"]
    assert repaired == ([21, 22] if "flips_per_step" in flip else [21])
    assert same_to_the_last_bit(run, expected)

    broken = make_live_run(model, workers=2)
    train(broken, 20)
    with make_fault("SILENT_DATA_CORRUPTION", "high", **flip).inject(broken):
        train(broken, 2)
    assert not same_to_the_last_bit(broken, expected)


@pytest.mark.parametrize(
    ("dropout", "step", "flips", "computed"),
    [
        (0.5, 30, 1, 2),  # random numbers and running statistics are those of one computation
        (0.0, 30, 2, 3),  # a second corrupted computation is not taken
        (0.0, 3, 1, 3),  # the third step is rehearsed, too: it agrees with the second computation
    ],
)
def test_a_repaired_step_is_that_of_one_computation(dropout: float, step: int, flips: int, computed: int) -> None:
    toy = Toy(dropout=dropout)
    toy.flip_in = {step: flips}
    with toy.watch(policy=RecomputeStep(max_retries=flips + 1)) as monitor:
        toy.train(40, monitor)
        assert [repair.verdict for repair in monitor.repairs] == ["transient"]
    assert toy.computations == {**dict.fromkeys(range(1, 41), 1), 3: 2, step: computed}
    assert equal(toy.bits(), unsupervised(40, dropout=dropout))


def test_an_activation_that_spoils_nothing_but_running_statistics_is_computed_again() -> None:
    toy = Toy()

    def flip(module: nn.Module, _: Any, output: torch.Tensor) -> None:
        if toy.step == 5 and toy.step not in toy.computations:  # while nothing is called unusual yet
            output.data[0, 0] = 1e30

    toy.model[0].register_forward_hook(flip)
    with toy.watch(policy=RecomputeStep()) as monitor:
        toy.train(10, monitor)
        [repair] = monitor.repairs
    assert (repair.step, repair.verdict) == (5, "transient")
    assert repair.reasons == ("the buffer 1.running_var is not finite any more",)
    assert equal(toy.bits(), unsupervised(10))


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_a_healthy_run_is_not_changed(kind: type[torch.optim.Optimizer]) -> None:
    toy = Toy(dropout=0.3, kind=kind, lr=0.01)
    with toy.watch(policy=RecomputeStep()) as monitor:
        assert all(toy.train(60, monitor))
        assert [repair for repair in monitor.repairs if repair.verdict != "agrees"] == []
    assert equal(toy.bits(), unsupervised(60, dropout=0.3, kind=kind, lr=0.01))


def test_gradients_of_what_the_optimizer_does_not_update_may_add_up() -> None:
    class HeadOnly(Toy):
        def __init__(self) -> None:
            super().__init__()
            self.optimizer = torch.optim.SGD(self.model[4].parameters(), lr=0.05)

        def corrupt(self, computation: int) -> None:
            self.model[4].weight.grad.view(-1)[computation] = 1e9

    toy, twin, policy = HeadOnly(), HeadOnly(), RecomputeStep()
    toy.flip_in = {30: 1}
    with toy.watch(policy=policy) as monitor:
        toy.train(40, monitor)
        assert [(repair.step, repair.verdict) for repair in monitor.repairs] == [(30, "transient")]
        assert policy.working
    twin.train(40)
    assert equal(toy.bits(), twin.bits())


def test_a_flip_in_what_another_optimizer_updates_is_repaired() -> None:
    toy = Toy()
    toy.optimizer = torch.optim.SGD(toy.model[4].parameters(), lr=0.05)
    other = torch.optim.SGD(toy.model[0].parameters(), lr=0.05)
    toy.optimizer.register_step_pre_hook(lambda *_: other.step())
    toy.optimizer.zero_grad = toy.model.zero_grad  # type: ignore[method-assign]
    toy.flip_in = {30: 1}
    with toy.watch(policy=RecomputeStep()) as monitor:
        toy.train(40, monitor)
        assert [(repair.step, repair.verdict) for repair in monitor.repairs] == [(30, "transient")]
    assert toy.model[0].weight.abs().max() < 100.0


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("flips", [{}, {30: 1}])
def test_noise_before_the_forward_pass_is_drawn_again(draw: str, flips: dict[int, int]) -> None:
    twin = Noisy(DRAWS[draw])
    twin.train(40)
    toy = Noisy(DRAWS[draw])
    toy.flip_in = flips
    with toy.watch(policy=RecomputeStep()) as monitor:
        toy.train(40, monitor)
        assert [(repair.step, repair.verdict) for repair in monitor.repairs] == [(step, "transient") for step in flips]
    assert equal(toy.bits(), twin.bits())


def test_a_loop_that_draws_between_steps_as_well_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    twin, policy = Noisy(DRAWS["torch"], between=True), RecomputeStep()
    twin.train(40)
    toy = Noisy(DRAWS["torch"], between=True)
    with caplog.at_level(logging.WARNING, "rmetric"), toy.watch(policy=policy) as monitor:
        toy.train(40, monitor)
        assert [(repair.step, repair.verdict, repair.differing) for repair in monitor.repairs] == [(3, "random", ())]
    assert not policy.working
    assert "nothing may draw any between two steps" in caplog.text
    assert equal(toy.bits(), twin.bits())


def test_what_sets_a_training_up_may_draw() -> None:
    toy = Noisy(DRAWS["torch"])
    toy.flip_in = {1: 1, 30: 1}
    toy.corrupt = lambda computation: toy.model[0].weight.grad.fill_(torch.inf)  # type: ignore[method-assign]
    policy = RecomputeStep()
    with toy.watch(policy=policy) as monitor:
        torch.rand(1)
        toy.train(31, monitor)
        assert [(repair.step, repair.verdict) for repair in monitor.repairs] == [(1, "refused"), (30, "transient")]


# -- what cannot be repaired by it ------------------------------------------------------------------------------------


def test_a_fault_that_stays_agrees_and_the_next_policy_is_asked() -> None:
    toy = Toy()
    toy.corrupt = lambda computation: toy.model[0].weight.grad.fill_(torch.nan)  # type: ignore[method-assign]
    toy.flip_in = {30: 99}
    with toy.watch(policy=Policies(RecomputeStep(), SkipUpdate())) as monitor:
        proceeded = toy.train(31, monitor)
        assert [(repair.policy, repair.verdict) for repair in monitor.repairs] == [
            ("RecomputeStep", "agrees"),
            ("SkipUpdate", "skipped"),
        ]
    assert proceeded == [True] * 29 + [False, True]


def test_alone_it_lets_training_go_on_as_without_it() -> None:
    toy, alone = Toy(), Toy()
    for each in (toy, alone):
        each.flip_in = {30: 99}
        each.corrupt = lambda computation, each=each: each.model[0].weight.grad.mul_(1e3)  # type: ignore[method-assign]
    with toy.watch(policy=RecomputeStep()) as monitor:
        assert all(toy.train(31, monitor))
        assert [repair.verdict for repair in monitor.repairs] == ["agrees"]
    alone.train(31)
    assert equal(toy.bits(), alone.bits())


def test_computations_that_are_all_different_are_unsettled() -> None:
    toy = Toy()
    toy.flip_in = {30: 99}
    with toy.watch(policy=RecomputeStep(max_retries=2)) as monitor:
        toy.train(30, monitor)
        assert [repair.verdict for repair in monitor.repairs] == ["unsettled"]
    assert toy.computations[30] == 3


def test_a_training_that_does_not_compute_the_same_twice_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    toy = Toy()
    toy.corrupt = lambda computation: toy.model[0].weight.grad.add_(1e-3 * computation)  # type: ignore[method-assign]
    toy.flip_in = dict.fromkeys(range(1, 100), 99)
    policy = RecomputeStep()
    with caplog.at_level(logging.WARNING, "rmetric"), toy.watch(policy=policy) as monitor:
        assert all(toy.train(60, monitor))
        assert [repair.verdict for repair in monitor.repairs] == ["random"]
    assert not policy.working
    assert {count for step, count in toy.computations.items() if step > 3} == {1}
    assert "does not compute the same twice" in caplog.text


def test_a_tolerance_covers_small_differences() -> None:
    toy = Toy()
    toy.corrupt = lambda computation: toy.model[0].weight.grad.mul_(1.0 + 1e-6 * computation)  # type: ignore[method-assign]
    toy.flip_in = dict.fromkeys(range(1, 100), 99)
    policy = RecomputeStep(tolerance=1e-3)
    with toy.watch(policy=policy) as monitor:
        toy.train(4, monitor)
        assert monitor.repairs == []
    assert policy.computations == 1
    assert policy.working


def test_a_fault_that_stays_does_not_double_the_cost_for_ever() -> None:
    toy = Toy()
    toy.corrupt = lambda computation: toy.model[0].weight.grad.fill_(torch.nan)  # type: ignore[method-assign]
    toy.flip_in = dict.fromkeys(range(4, 100), 99)
    policy = RecomputeStep(burst=5)
    with toy.watch(policy=policy) as monitor:
        toy.train(40, monitor)
    assert policy.computations == 1 + 5


# -- what goes wrong while repairing ----------------------------------------------------------------------------------


def spoiled() -> Toy:
    toy = Toy(dropout=0.3)
    toy.flip_in = {30: 1}
    toy.corrupt = lambda computation: toy.model[0].weight.grad.mul_(1e3)  # type: ignore[method-assign]
    return toy


def test_an_error_in_recompute_puts_all_back_and_ends_the_repairs(caplog: pytest.LogCaptureFixture) -> None:
    alone = spoiled()
    alone.train(35)
    toy = spoiled()

    def failing() -> torch.Tensor:
        if toy.step == 30:
            toy.optimizer.zero_grad()
            toy.model(torch.randn(16, 6))
            raise RuntimeError("out of memory")
        return toy.compute()

    with caplog.at_level(logging.WARNING, "rmetric"), toy.watch(policy=RecomputeStep()) as monitor:
        for _ in range(35):
            toy.step += 1
            loss = toy.compute()
            assert monitor.step(loss, recompute=failing)
            toy.optimizer.step()
        assert monitor.enabled
        assert monitor.last.step == 35
    assert equal(toy.bits(), alone.bits())
    assert "nothing is repaired any more, training goes on: in step 30" in caplog.text


def test_without_recompute_it_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    toy = Toy()
    toy.flip_in = {30: 1, 32: 1}
    with (
        caplog.at_level(logging.WARNING, "rmetric"),
        toy.watch(policy=[RecomputeStep(), SkipUpdate(certain=False)]) as m,
    ):
        assert toy.train(33, m, recompute=False) == [True] * 29 + [False, True, False, True]
    assert caplog.text.count("call monitor.step(loss, recompute=compute)") == 1


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(UserError, match=r"policy= takes policies such as RecomputeStep"):
        Toy().watch(policy=["RecomputeStep"])
    policy = RecomputeStep()
    with pytest.raises(UserError, match="twice"):
        Toy().watch(policy=[policy, policy])


# -- what is told -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_place_is_told_in_the_log_and_in_repairs(tmp_path: Path) -> None:
    run = make_live_run(workers=4)
    fault = make_fault(
        "SILENT_DATA_CORRUPTION", "high", target="matmul", stage="backward", tensor="layers.1.*down_proj"
    )
    with watched(run, log=tmp_path / "run.jsonl", policy=RecomputeStep()) as monitor:
        train(run, 20)
        with fault.inject(run):
            train(run, 2)
        [repair] = monitor.repairs
    log = read_log(tmp_path / "run.jsonl")
    [told] = [event for event in log.events if event["event"] == "REPAIR"]
    [flip] = [event for event in log.events if event["event"] == "CORRUPTION"]
    assert isinstance(repair, RepairRecord)
    assert (told["step"], told["policy"], told["verdict"]) == (21, "RecomputeStep", "transient")
    assert list(repair.differing) == told["differing"]
    # the wrong gradient reaches all that lies before the layer, and nothing behind it
    assert not any(name.startswith("lm_head") for name in repair.differing)
    assert "model.layers.1.mlp.up_proj.weight" in repair.differing
    assert repair.workers == (flip["worker"],)
    assert repair.loss_before == repair.loss_after  # a flip on the way back is not in the loss
    losses = log.observations["training_loss"]
    assert losses[20] == pytest.approx(repair.loss_after, rel=1e-6)


def test_statistics_of_the_observers_are_those_of_the_accepted_computation(tmp_path: Path) -> None:
    healthy = make_live_run(workers=4)
    with watched(healthy, log=tmp_path / "healthy.jsonl", attention_logits=True, clock=lambda: 0.0):
        train(healthy, 10)
    run = make_live_run(workers=4)
    with watched(run, log=tmp_path / "run.jsonl", attention_logits=True, clock=lambda: 0.0, policy=RecomputeStep()):
        train(run, 6)
        with make_fault("SILENT_DATA_CORRUPTION", "high", target="matmul", stage="backward").inject(run):
            train(run, 4)
    one, other = (read_log(tmp_path / name).observations for name in ("healthy.jsonl", "run.jsonl"))
    for column in ("training_loss", "grad_norm", "sigma_sq", "update_rms", "attention_logit_max", "delta_l"):
        assert one[column].tolist()[1:] == other[column].tolist()[1:]


def test_a_resumed_run_needs_no_rehearsal_and_knows_what_is_usual() -> None:
    toy = Toy()
    with toy.watch(policy=RecomputeStep()) as monitor:
        toy.train(30, monitor)
        buffer = io.BytesIO()
        torch.save(monitor.state_dict(), buffer)
    state = torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)
    toy.flip_in = {32: 1}
    with toy.watch(policy=RecomputeStep()) as resumed:
        resumed.load_state_dict(state)
        toy.train(3, resumed)
        assert [(repair.step, repair.verdict) for repair in resumed.repairs] == [(32, "transient")]
    assert toy.computations[31] == 1
    assert toy.computations[33] == 1


def test_a_state_without_repairs_is_that_of_a_run_without_policies() -> None:
    toy = Toy()
    with toy.watch() as monitor:
        toy.train(3, monitor)
        state = monitor.state_dict()
    with toy.watch(policy=RecomputeStep()) as resumed:
        tensors = {name: state[name] for name in ("update", "agreement")}
        resumed.load_state_dict(json.loads(json.dumps({**state, **dict.fromkeys(tensors)})) | tensors)
        toy.train(3, resumed)
        assert resumed.enabled


# -- precision, compilation -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_under_autocast_and_a_gradient_scaler(precision: torch.dtype) -> None:
    def run_once(flip: bool) -> tuple[list[torch.Tensor], list[RepairRecord], float]:
        run = make_live_run(workers=2, autocast=precision)
        monitor = watched(run, policy=RecomputeStep(), scaler=run.scaler)
        with monitor:
            train(run, 8)
            if flip:
                with make_fault("SILENT_DATA_CORRUPTION", "high", target="gradient").inject(run):
                    train(run, 3)
            else:
                train(run, 3)
            assert monitor.enabled
            return state_bits(run), monitor.repairs, run.scaler.get_scale()

    healthy, none, scale = run_once(flip=False)
    repaired, repairs, scale_after = run_once(flip=True)
    assert [repair.step for repair in repairs if repair.verdict == "transient"] == [9]
    assert [repair for repair in none if repair.verdict != "agrees"] == []
    assert all(torch.equal(a, b) for a, b in zip(healthy, repaired, strict=True))
    assert scale == scale_after


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_with_torch_compile() -> None:
    toy = Toy(dropout=0.2)
    toy.watched = torch.compile(toy.model, backend="aot_eager")  # type: ignore[assignment]
    toy.flip_in = {20: 1}
    monitor = toy.watch(policy=RecomputeStep())
    with monitor:
        toy.train(22, monitor)
        assert [repair.verdict for repair in monitor.repairs] == ["transient"]
    alone = Toy(dropout=0.2)
    alone.watched = torch.compile(alone.model, backend="aot_eager")  # type: ignore[assignment]
    alone.train(22)
    assert equal(toy.bits(), alone.bits())


@pytest.mark.parametrize("draws", ["in the step", "between steps"])
@pytest.mark.slow
def test_a_model_that_is_compiled_in_one_graph(draws: str) -> None:
    def train(policy: RecomputeStep | None) -> tuple[Toy, list[str]]:
        torch.compiler.reset()
        toy = Toy(dropout=0.2 if draws == "in the step" else 0.0)
        toy.watched = torch.compile(toy.model, backend="eager", fullgraph=True)  # type: ignore[assignment]
        toy.flip_in = {20: 1} if policy else {}
        monitor = toy.watch(policy=policy) if policy else None
        for _ in range(22):
            torch.rand(int(draws == "between steps"))
            toy.train(1, monitor)
        return toy, [repair.verdict for repair in monitor.repairs] if monitor else []

    toy, verdicts = train(RecomputeStep())
    assert verdicts == ["transient"]
    assert equal(toy.bits(), train(None)[0].bits())


def test_a_buffer_that_begins_to_change_late_is_put_back() -> None:
    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 1)
            self.register_buffer("calls", torch.zeros(()))
            self.counting = False

        def forward(self, data: torch.Tensor) -> torch.Tensor:
            if self.counting:
                self.calls += 1.0
            return self.linear(data)

    torch.manual_seed(0)
    model = Late()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def compute() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().mean()
        loss.backward()
        return loss

    with TrainingMonitor(model, optimizer, hardware=False, policy=RecomputeStep()) as monitor:
        for step in range(1, 6):  # the third is computed twice
            model.counting = step >= 3
            loss = compute()
            monitor.step(loss, recompute=compute)
            optimizer.step()
        assert model.calls == 3.0
        assert monitor.enabled


def test_a_permanent_flip_comes_again_and_a_transient_one_does_not() -> None:
    for persistence, verdict in (("transient", "transient"), ("permanent", "agrees")):
        run = make_live_run()
        fault = make_fault("SILENT_DATA_CORRUPTION", "high", target="gradient", persistence=persistence)
        with watched(run, policy=RecomputeStep()) as monitor:
            train(run, 4)
            with fault.inject(run):
                train(run, 1)
            found = [repair.verdict for repair in monitor.repairs if repair.policy == "RecomputeStep"]
            assert found == [verdict]


def test_any_generator_of_numpy_will_do() -> None:
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(1))
    try:
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        monitor = TrainingMonitor(model, optimizer, hardware=False, announce=False, policy=RecomputeStep())

        def compute() -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = model(torch.ones(2, 4) * float(np.random.random())).square().mean()  # noqa: NPY002
            loss.backward()
            return loss.detach()

        for _ in range(5):  # the third step is computed twice; a warning would be an error
            monitor.step(compute(), recompute=compute)
            optimizer.step()
        monitor.close()
        assert monitor.repairs == []
    finally:
        np.random.set_bit_generator(before)


def test_a_budget_fills_slowly() -> None:
    budget = TokenBucket(share=0.1, burst=2)
    assert [budget.take() for _ in range(3)] == [True, True, False]
    for _ in range(11):
        budget.tick()
    assert [budget.take() for _ in range(2)] == [True, False]
    budget.give_back()
    assert budget.take()
