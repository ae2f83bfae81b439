from __future__ import annotations

import gc
import logging
import math
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from rmetric.live.models import tiny_model
from rmetric.monitor.dispersion import MicroBatchDispersion, dispersion_source, micro_batches
from rmetric.signals import gradient_variance

MICRO_BATCHES = 3
Watched = tuple[nn.Module, MicroBatchDispersion]
CHECKPOINTING_IS_RENAMED = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
"""By transformers 5; the old names work with the versions before, too, and peft uses them."""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))


def _loss(model: nn.Module, part: Tensor) -> Tensor:
    if part.dtype == torch.int64:
        return model(input_ids=part, labels=part).loss
    return model(part).square().mean()


def _parts(step: int = 0, parts: int = MICRO_BATCHES) -> list[Tensor]:
    return list(torch.randn(parts, 4, 6, generator=torch.Generator().manual_seed(step)))


def _tokens(step: int = 0, parts: int = MICRO_BATCHES) -> list[Tensor]:
    return list(torch.randint(0, 256, (parts, 2, 12), generator=torch.Generator().manual_seed(step)))


def _accumulate(model: nn.Module, parts: list[Tensor], scale: float = 1.0) -> None:
    model.zero_grad()
    for part in parts:
        (_loss(model, part) * (scale / len(parts))).backward()


def _own_norm(model: nn.Module, part: Tensor) -> float:
    """Norm of the gradient of one part alone, computed some other way."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(_loss(model, part), parameters, allow_unused=True)
    return math.sqrt(sum(float(g.double().square().sum()) for g in gradients if g is not None))


def _own_norms(model: nn.Module, parts: Callable[..., list[Tensor]] = _parts) -> list[float]:
    """Those of the second step's parts."""
    return [_own_norm(model, part) for part in parts(1)]


def _counted(model: nn.Module | None = None, parts: Callable[..., list[Tensor]] = _parts) -> Watched:
    """A network and its spread after the first step, in which it has seen that there are several passes."""
    model = _network() if model is None else model
    spread = MicroBatchDispersion(model)
    _accumulate(model, parts(0))
    assert spread.collect() is None
    return model, spread


def _measured(model: nn.Module, parts: Callable[..., list[Tensor]] = _parts) -> list[float]:
    """What is collected in the second step."""
    _, spread = _counted(model, parts)
    _accumulate(model, parts(1))
    norms = spread.collect()
    spread.close()
    return norms.tolist()


def _hooks(model: nn.Module) -> int:
    hooks = [(item._backward_hooks, item._post_accumulate_grad_hooks) for item in model.parameters()]
    return sum(len(of_a_kind or ()) for of_a_parameter in hooks for of_a_kind in of_a_parameter)


def test_between_measurements_no_parameter_has_a_hook_and_the_measured_steps_are_the_same() -> None:
    every_step, every_third = _network(), _network()
    all_steps, third = MicroBatchDispersion(every_step), MicroBatchDispersion(every_third)
    seen: list[tuple[Tensor | None, Tensor | None]] = []
    hooks = []
    for step in range(8):
        hooks.append(_hooks(every_third))
        _accumulate(every_step, _parts(step))
        _accumulate(every_third, _parts(step))
        seen.append((all_steps.collect(), third.collect()))
        third.next_step(measured=step % 3 == 0)
    measured = [step for step, (_, norms) in enumerate(seen) if norms is not None]
    assert measured == [1, 4, 7]  # step 0 counts the passes
    assert [bool(count) for count in hooks] == [True, True, False, False, True, False, False, True]
    for step in measured:
        assert torch.equal(*seen[step])  # type: ignore[arg-type]


# -- what is measured -------------------------------------------------------------------------------------------------


def test_the_norms_are_those_of_each_micro_batch_by_hand() -> None:
    model = nn.Linear(2, 1, bias=False)
    spread = MicroBatchDispersion(model)
    for _ in range(2):
        model.zero_grad()
        for row in ([3.0, 4.0], [0.0, 1.0]):  # the gradient of a linear output is its input
            (model(torch.tensor([row])).sum() / 2).backward()
        norms = spread.collect()
    assert norms.tolist() == [5.0, 1.0]
    assert gradient_variance(norms.numpy()) == 4.0
    assert (norms.dtype, model.weight.grad.tolist()) == (torch.float32, [[1.5, 2.5]])


def test_sigma_squared_is_the_variance_of_the_norms_in_double_precision() -> None:
    model = _network()
    expected = [_own_norm(model.double(), part.double()) for part in _parts(1)]
    measured = _measured(model.float())
    assert measured == pytest.approx(expected, rel=1e-6)
    assert gradient_variance(torch.tensor(measured).numpy()) == pytest.approx(
        torch.tensor(expected).var(unbiased=False).item(), rel=1e-4
    )


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-moe", "tiny-qwen"])
def test_transformers_are_measured_with_idle_experts_and_tied_embeddings(name: str) -> None:
    model = tiny_model(name, seed=1)
    expected = _own_norms(model, _tokens)
    assert _measured(model, _tokens) == pytest.approx(expected, rel=1e-5)


def test_a_parameter_that_a_micro_batch_does_not_use_adds_nothing() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right, self.shared = nn.Linear(6, 3), nn.Linear(6, 3), nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.shared((self.left if x.sum() > 0 else self.right)(x))

    model = Branches()
    used = {bool(part.sum() > 0) for part in _parts(1)}
    assert used == {True, False}
    assert _measured(model) == pytest.approx(_own_norms(model), rel=1e-6)


class _AskedFor(nn.Module):
    """Gradients are asked for in each pass, as for a penalty or a balance of losses, and added to none."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.model(x)
        torch.autograd.grad(result.square().mean(), list(self.parameters()), retain_graph=True)
        return result


def test_gradients_that_are_asked_for_are_no_pass() -> None:
    expected = _measured(_network())
    assert _measured(_AskedFor(_network())) == expected
    alone = MicroBatchDispersion(model := _AskedFor(_network()))
    for step in range(3):
        _accumulate(model, _parts(step, parts=1))
        assert alone.collect() is None
    assert _hooks(model) == 2  # it still counts passes, and has found one a step
    alone.close()


def test_passes_whose_gradients_are_taken_away_again_are_no_micro_batches() -> None:
    model = _network()
    spread = MicroBatchDispersion(model)
    spread.start_measuring()
    _accumulate(model, _parts(0))
    spread.collect()
    for part in _parts(1):  # as the closure of an optimizer that calls it many times
        model.zero_grad()
        _loss(model, part).backward()
    assert spread.collect() is None
    _accumulate(model, _parts(2))  # what came before it, after the call, is none of its parts
    norms = spread.collect()
    assert norms is not None and len(norms) == MICRO_BATCHES
    spread.close()


def test_frozen_parameters_are_left_alone() -> None:
    model = tiny_model("tiny-llama", seed=1)
    for parameter in model.model.embed_tokens.parameters():
        parameter.requires_grad_(False)
    assert _measured(model, _tokens) == pytest.approx(_own_norms(model, _tokens), rel=1e-5)


def test_a_layer_that_is_frozen_before_the_passes_are_measured_takes_no_hook() -> None:
    model = _network()
    spread = MicroBatchDispersion(model)
    model[0].requires_grad_(False)
    for step in range(2):
        _accumulate(model, _parts(step))
        norms = spread.collect()
    assert norms.tolist() == pytest.approx(_own_norms(model), rel=1e-6)


def test_a_layer_that_is_trained_again_counts_again_whenever_it_was_frozen() -> None:
    model = _network()
    model[0].requires_grad_(False)
    spread = MicroBatchDispersion(model)
    spread.start_measuring()
    model.requires_grad_().register_parameter("later", nn.Parameter(torch.zeros(1)))
    model[2].requires_grad_(False)  # has a hook, and keeps it
    spread.refresh()
    model.requires_grad_()
    _accumulate(model, _parts(1))
    assert spread.collect().tolist() == pytest.approx(_own_norms(model), rel=1e-6)
    spread.close()
    assert _hooks(model) == 0


def test_gradients_in_bfloat16_have_norms_in_single_precision() -> None:
    model = _network().bfloat16()
    parts = [part.bfloat16() for part in _parts(1)]
    spread = MicroBatchDispersion(model)
    for _ in range(2):
        _accumulate(model, parts)
        norms = spread.collect()
    assert norms.dtype == torch.float32
    assert norms.tolist() == pytest.approx([_own_norm(model, part) for part in parts], rel=0.02)


def test_the_norms_grow_with_the_scale_of_the_loss() -> None:
    model, spread = _counted()
    norms = []
    for scale in (1.0, 1024.0):
        _accumulate(model, _parts(1), scale)
        norms.append(spread.collect())
    assert torch.equal(norms[1], norms[0] * 1024.0)


def test_a_broken_gradient_shows_as_a_norm_that_is_not_finite() -> None:
    model, spread = _counted()
    parts = _parts(1)
    parts[1][0, 0] = math.inf
    _accumulate(model, parts)
    assert torch.isfinite(spread.collect()).tolist() == [True, False, True]


# -- when ------------------------------------------------------------------------------------------------------------


def test_a_step_with_one_backward_pass_has_no_parts() -> None:
    model = _network()
    spread = MicroBatchDispersion(model)
    found = []
    for parts in (1, 3, 3, 1, 0, 2):
        model.zero_grad()
        if parts:
            _accumulate(model, _parts(0, parts))
        norms = spread.collect()
        found.append(0 if norms is None else len(norms))
    assert found == [0, 0, 3, 0, 0, 2]


def test_a_resumed_run_is_measured_from_its_first_step() -> None:
    model = _network()
    spread = MicroBatchDispersion(model)
    spread.start_measuring()
    _accumulate(model, _parts(1))
    assert spread.collect().tolist() == pytest.approx(_own_norms(model), rel=1e-6)


def test_nothing_but_two_hooks_is_there_until_a_step_has_had_two_passes() -> None:
    model = tiny_model("tiny-llama", seed=1)
    spread = MicroBatchDispersion(model)
    for _ in range(3):
        _accumulate(model, _tokens(0, 1))
        spread.collect()
    assert _hooks(model) == 2
    _accumulate(model, _tokens(0, 2))
    spread.collect()
    assert _hooks(model) == len(list(model.parameters()))
    spread.close()
    assert _hooks(model) == 0
    spread.close()
    assert spread.collect() is None


def test_an_evaluation_in_between_does_not_count() -> None:
    model = _network()
    spread = MicroBatchDispersion(model)
    for _ in range(2):
        model.zero_grad()
        for part in _parts(1):
            (_loss(model, part) / MICRO_BATCHES).backward()
            with torch.no_grad():
                _loss(model, part)
            _loss(model, part)  # with a graph, but never differentiated
        norms = spread.collect()
    assert norms.tolist() == pytest.approx(_own_norms(model), rel=1e-6)


@CHECKPOINTING_IS_RENAMED
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("adapted", [False, True])
def test_checkpointing_does_not_multiply_the_passes(adapted: bool, reentrant: bool) -> None:
    model = tiny_model("tiny-llama", seed=1)
    if adapted:  # each layer is a pass of its own then
        peft = pytest.importorskip("peft")
        model.enable_input_require_grads()
        config = peft.LoraConfig(target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        model = peft.get_peft_model(model, config)
    expected = _own_norms(model, _tokens)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    model.train()
    assert _measured(model, _tokens) == pytest.approx(expected, rel=1e-5)


class HostReads(TorchDispatchMode):
    """Counts the operations that make the host wait for a value."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in (torch.ops.aten._local_scalar_dense, torch.ops.aten.nonzero, torch.ops.aten._to_copy):
            self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_nothing_waits_for_the_device() -> None:
    model = _network()
    spread = MicroBatchDispersion(model)
    with HostReads() as reads:
        for step in range(3):
            _accumulate(model, _parts(step))
            norms = spread.collect()
        assert reads.seen == []
        norms[0].item()
        assert reads.seen == ["aten._local_scalar_dense.default"]


# -- it disturbs nothing ----------------------------------------------------------------------------------------------


def test_training_is_the_same_to_the_last_bit() -> None:
    watched, alone = _network(), _network()
    spread = MicroBatchDispersion(watched)
    for model in (watched, alone):
        optimizer = torch.optim.AdamW(model.parameters())
        for step in range(5):
            _accumulate(model, _parts(step))
            optimizer.step()
            if model is watched:
                spread.collect()
    for one, other in zip(watched.parameters(), alone.parameters(), strict=True):
        assert torch.equal(one, other)


def test_autograd_keeps_the_very_memory_of_the_first_gradient() -> None:
    model, _spread = _counted()
    seen: dict[nn.Parameter, int] = {}
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient, parameter=parameter: seen.update({parameter: gradient.data_ptr()}))
    _accumulate(model, _parts(0, 1))
    assert len(seen) == 4
    assert all(parameter.grad.data_ptr() == seen[parameter] for parameter in model.parameters())


def test_no_gradient_outlives_its_pass() -> None:
    model, _spread = _counted()
    kept: list[weakref.ref] = []
    model[0].weight.register_hook(lambda gradient: kept.append(weakref.ref(gradient.untyped_storage())))
    _accumulate(model, _parts())
    gc.collect()
    assert [ref() for ref in kept[1:]] == [None] * (MICRO_BATCHES - 1)


def test_large_gradients_are_measured_before_the_pass_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    true_norm = torch._foreach_norm
    monkeypatch.setattr(torch, "_foreach_norm", lambda held, *args: calls.append(len(held)) or true_norm(held, *args))
    model = _network()
    expected = _measured(model)
    assert calls == [4] * MICRO_BATCHES
    calls.clear()
    monkeypatch.setattr(micro_batches, "HELD_BYTES", 32)  # the second layer alone has more
    assert _measured(model) == pytest.approx(expected, rel=1e-7)
    assert len(calls) > MICRO_BATCHES


# -- when something goes wrong ----------------------------------------------------------------------------------------


def test_a_backward_pass_that_breaks_off_spoils_its_step_only() -> None:
    model, spread = _counted()

    def fails(gradient: Tensor) -> None:
        raise ArithmeticError("no more")

    hook = model[0].weight.register_hook(fails)
    with pytest.raises(ArithmeticError):
        _accumulate(model, _parts(1))
    hook.remove()
    assert spread.collect() is None
    _accumulate(model, _parts(1))
    assert spread.collect().tolist() == pytest.approx(_own_norms(model), rel=1e-6)


def test_an_error_of_its_own_never_leaves_the_backward_pass(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, spread = _counted()

    def out_of_memory(*arguments: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(torch, "_foreach_norm", out_of_memory)
    with caplog.at_level(logging.WARNING, logger="rmetric"):
        _accumulate(model, _parts(1))
        _accumulate(model, _parts(1))
    assert [record.getMessage() for record in caplog.records] == [
        "gradients of micro-batches are no longer measured: RuntimeError: out of memory"
    ]
    assert (_hooks(model), spread.collect()) == (0, None)


def test_a_model_without_anything_to_train_has_nothing_to_measure() -> None:
    model = _network().requires_grad_(False)
    spread = MicroBatchDispersion(model)
    assert spread.collect() is None
    spread.close()


# -- which source -----------------------------------------------------------------------------------------------------


def test_a_model_on_one_device_offers_its_micro_batches() -> None:
    assert isinstance(dispersion_source(_network()), MicroBatchDispersion)


@pytest.mark.slow
def test_a_compiled_model_is_measured_too() -> None:
    model = _network()
    expected = _own_norms(model)
    compiled = torch.compile(model, backend="aot_eager")
    spread = dispersion_source(compiled)
    for step in range(2):
        compiled.zero_grad()
        for part in _parts(step):
            (compiled(part).square().mean() / MICRO_BATCHES).backward()
        norms = spread.collect()
    assert norms.tolist() == pytest.approx(expected, rel=1e-5)


def test_sparse_gradients_are_measured_by_their_entries() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.embed, self.head = nn.Embedding(256, 8, sparse=True), nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.embed((x.abs() * 20).long()))

    sparse, dense = Tokens(), Tokens()
    dense.embed.sparse = False
    assert _measured(sparse) == pytest.approx(_measured(dense), rel=1e-6)
