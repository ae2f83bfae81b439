from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from rmetric.errors import UserError
from rmetric.faults import Fault, make_fault
from rmetric.live.injection.bits import flip_bit, read_bit
from rmetric.live.run import Batch, LiveRun, Moment
from tests.live.faults.common import Notes, same_bits, trained

MAKE = Callable[..., LiveRun]
Q = "model.layers.0.self_attn.q_proj"
O = "model.layers.1.self_attn.o_proj"  # noqa: E741 - as in the literature


def _flip(**parameters: Any) -> Fault:
    """A single flip of bit 30 in a weight, unless told otherwise."""
    return make_fault("SILENT_DATA_CORRUPTION", "high", **parameters)


def _changed(left: Tensor, right: Tensor) -> dict[tuple[int, ...], int]:
    """Position → bits (as a mask) in which two float32 tensors differ."""
    bits = left.detach().view(torch.int32) ^ right.detach().view(torch.int32)
    return {tuple(place): int(bits[tuple(place)]) & 0xFFFFFFFF for place in torch.nonzero(bits).tolist()}


def _all_changed(left: dict[str, Tensor], right: dict[str, Tensor]) -> dict[str, dict[tuple[int, ...], int]]:
    differing = {name: _changed(left[name], right[name]) for name in left}
    return {name: places for name, places in differing.items() if places}


def _weights(run: LiveRun) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in run.model.named_parameters()}


def _states(run: LiveRun) -> dict[str, Tensor]:
    names = {value: name for name, value in run.model.named_parameters()}
    return {
        f"{names[parameter]}.{key}": value.clone()
        for parameter, state in run.optimizer.state.items()
        for key, value in state.items()
        if value.dim()
    }


@contextmanager
def _seen(run: LiveRun, moment: Moment, look: Callable[[LiveRun], Any]) -> Iterator[list[Any]]:
    """What there is to see at a moment of each step, after whatever a fault does there."""
    found: list[Any] = []

    def keep(given: Batch | int | None = None) -> Batch | int | None:
        found.append(look(run))
        return given

    with run.at(moment, keep):
        yield found


@contextmanager
def _outputs(run: LiveRun, module: str) -> Iterator[list[Tensor]]:
    """What a module returns, call by call, after whatever a fault does to it."""
    found: list[Tensor] = []

    def keep(_: torch.nn.Module, given: Any, result: Any) -> None:
        found.append((result[0] if isinstance(result, tuple) else result).detach().clone())

    with ExitStack() as stack:
        stack.callback(run.model.get_submodule(module).register_forward_hook(keep).remove)
        yield found


def _told(run: LiveRun) -> list[dict[str, Any]]:
    return run.observer.told if isinstance(run.observer, Notes) else Notes(run).told


def _told_of(run: LiveRun, steps: int = 1, **parameters: Any) -> list[dict[str, Any]]:
    """What is told of some steps with this flip."""
    told = _told(run)
    with _flip(**parameters).inject(run):
        trained(run, steps)
    return told


# --- weights ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bit", [0, 20, 23, 30, 31])
def test_one_bit_of_one_weight_flips_before_the_forward_pass(make_run: MAKE, bit: int) -> None:
    run = trained(make_run(), 2)
    before, told = _weights(run), _told(run)
    with _flip(bit=bit).inject(run), _seen(run, "batch", _weights) as seen:
        assert same_bits(_weights(run), before)  # not before the step
        run.train_step()
    (note,) = told
    place = tuple(note["position"])
    assert _all_changed(before, seen[0]) == {note["tensor"]: {place: 1 << bit}}
    assert note["before"] == before[note["tensor"]][place].item()
    assert note["after"] == seen[0][note["tensor"]][place].item()
    shape = before[note["tensor"]].shape
    assert note["index"] == place[0] * shape[1] + place[1]
    assert {key: note[key] for key in ("event", "step", "fault", "target", "persistence", "stage", "bit", "dtype")} == {
        "event": "CORRUPTION", "step": 3, "fault": "SILENT_DATA_CORRUPTION", "target": "weight",
        "persistence": "transient", "stage": "memory", "bit": bit, "dtype": "float32",
    }  # fmt: skip
    assert note["bit_part"] == ("sign" if bit == 31 else "exponent" if bit >= 23 else "mantissa")


def test_a_transient_flip_stays_in_the_weight_and_is_never_repeated(make_run: MAKE) -> None:
    run = make_run(learning_rate=0.0)
    before = _weights(run)
    (note,) = _told_of(run, 4, bit=22)
    trained(run, 1)
    assert _all_changed(before, _weights(run)) == {note["tensor"]: {tuple(note["position"]): 1 << 22}}


def test_recurring_flips_come_at_their_rate_in_one_tensor(make_run: MAKE) -> None:
    run = make_run(learning_rate=0.0)
    before = _weights(run)
    told = _told_of(run, 40, bit=3, persistence="recurring", flips_per_step=0.4)
    steps = [note["step"] for note in told]
    assert steps[0] == 1
    assert steps == sorted(set(steps))
    assert 9 <= len(steps) <= 24
    (tensor,) = {note["tensor"] for note in told}
    places = [tuple(note["position"]) for note in told]
    assert len(set(places)) > 1
    once = {place: 1 << 3 for place in places if places.count(place) % 2}
    assert _all_changed(before, _weights(run)) == {tensor: once}


@pytest.mark.parametrize(("probability", "steps"), [(0.0, [1]), (1.0, [1, 2, 3, 4])])
def test_recurring_never_and_always(make_run: MAKE, probability: float, steps: list[int]) -> None:
    told = _told_of(make_run(), 4, bit=0, persistence="recurring", flips_per_step=probability)
    assert [note["step"] for note in told] == steps


def test_a_permanent_flip_holds_its_bit_against_the_optimizer_and_for_every_reader(make_run: MAKE) -> None:
    run = trained(make_run(learning_rate=0.01), 1)
    before, told = _weights(run), _told(run)
    with _flip(bit=14, persistence="permanent").inject(run), _seen(run, "batch", _weights) as seen:
        after = []
        for _ in range(8):
            run.train_step()
            after.append(_weights(run))  # what an evaluation would read
    name, place = told[0]["tensor"], tuple(told[0]["position"])
    stuck = not read_bit(before[name], place, 14)
    held = [read_bit(weights[name], place, 14) for weights in seen + after]
    assert held == [stuck] * 16
    assert len({weights[name][place].item() for weights in after}) == 8  # the other bits are free to learn
    assert {(note["tensor"], tuple(note["position"]), note["bit"]) for note in told} == {(name, place, 14)}
    assert 1 < len(told) < 16  # noted where the bit had to be set
    for note in told:
        flipped = torch.tensor([note["before"]])
        assert flip_bit(flipped, (0,), 14).after == note["after"]


def test_a_permanent_flip_lets_go_when_it_ends(make_run: MAKE) -> None:
    run = trained(make_run(learning_rate=0.01), 1)
    told = _told_of(run, 2, bit=14, persistence="permanent")
    count, name, place = len(told), told[0]["tensor"], tuple(told[0]["position"])
    values = {read_bit(_weights(trained(run, 1))[name], place, 14) for _ in range(12)}
    assert values == {False, True}
    assert len(told) == count


# --- gradients and optimizer state -----------------------------------------------------------------------------------


@pytest.mark.parametrize("persistence", ["transient", "recurring", "permanent"])
def test_one_bit_of_one_gradient_flips_after_all_backward_passes(make_run: MAKE, persistence: str) -> None:
    run, calm = (make_run(learning_rate=0.0) for _ in range(2))  # the same gradients but for the flip
    told, expected = Notes(run).told, Notes(calm)
    fault = _flip(target="gradient", bit=29, persistence=persistence, flips_per_step=1.0)
    places = []
    with fault.inject(run):
        for step in (1, 2, 3):
            run.train_step(), calm.train_step()
            changed = _all_changed(expected.gradients, run.observer.gradients)
            if persistence == "transient" and step > 1:
                assert changed == {}
                continue
            note = told[-1]
            places.append(tuple(note["position"]))
            assert changed == {note["tensor"]: {places[-1]: 1 << 29}}
            assert (note["step"], note["target"], note["stage"]) == (step, "gradient", "backward")
            assert note["after"] == run.observer.gradients[note["tensor"]][places[-1]].item()
    assert len({note["tensor"] for note in told}) == 1
    assert len(places) == {"transient": 1, "recurring": 3, "permanent": 3}[persistence]
    assert len(set(places)) == {"transient": 1, "recurring": 3, "permanent": 1}[persistence]
    run.train_step(), calm.train_step()
    assert same_bits(run.observer.gradients, expected.gradients)


def test_an_infinite_gradient_norm_under_clipping_costs_the_step_and_shows_nowhere_in_the_loss(make_run: MAKE) -> None:
    run = trained(make_run(clip=1.0, learning_rate=1e-3), 3)
    run.optimizer.param_groups[0]["weight_decay"] = 0.0
    notes = Notes(run)
    updates: list[bool] = []
    handle = run.optimizer.register_step_pre_hook(
        lambda *_: updates.append(any(bool(value.grad.any()) for value in run.model.parameters()))
    )
    with _flip(target="gradient", persistence="permanent").inject(run):
        losses = []
        for _ in range(3):
            losses.append(run.train_step().item())
            gradients = list(notes.gradients.values())
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
            assert norm.isinf()
            assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    handle.remove()
    assert updates == [False] * 3  # clipped to nothing
    assert all(math.isfinite(loss) and loss < math.log(256) + 0.5 for loss in losses)


@pytest.mark.parametrize("state", ["exp_avg", "exp_avg_sq"])
def test_one_bit_of_the_optimizers_memory_flips_before_it_is_used(make_run: MAKE, state: str) -> None:
    run = trained(make_run(), 2)
    before, weights, told = _states(run), _weights(run), _told(run)
    fault = _flip(target="optimizer", bit=21, tensor=f"o_proj*.{state}")
    with fault.inject(run), _seen(run, "gradients", _states) as seen:
        run.train_step()
    (note,) = told
    assert note["tensor"].endswith(f"o_proj.weight.{state}")
    assert _all_changed(before, seen[0]) == {note["tensor"]: {tuple(note["position"]): 1 << 21}}
    assert (note["target"], note["stage"]) == ("optimizer", "memory")
    assert not same_bits(weights, _weights(run))


def test_an_optimizer_remembers_nothing_before_its_first_step(make_run: MAKE) -> None:
    assert [note["step"] for note in _told_of(make_run(), 3, target="optimizer", bit=0)] == [2]


def test_an_optimizer_without_memory_is_the_users_error(make_run: MAKE) -> None:
    run = make_run()
    run.optimizer = torch.optim.SGD(run.model.parameters(), lr=0.1)
    with (
        pytest.raises(UserError, match="the optimizer keeps nothing that could flip; choose one that does, such as"),
        _flip(target="optimizer").inject(run),
    ):
        trained(run, 2)
    assert run.step == 2


def test_a_gradient_that_is_not_there_yet_flips_when_it_is(make_run: MAKE) -> None:
    run = make_run()
    told = _told(run)
    frozen = run.model.get_submodule(Q).weight

    def drop() -> None:
        if run.step < 3:
            frozen.grad = None

    with run.at("gradients", drop), _flip(target="gradient", tensor=f"{Q}.weight").inject(run):
        trained(run, 4)
    assert [note["step"] for note in told] == [3]


# --- activations and products ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "module"), [("activation", "model.layers.0"), ("activation", "model.norm"), ("matmul", Q), ("matmul", O)]
)
def test_one_bit_of_one_output_flips_in_one_workers_forward_pass(make_run: MAKE, target: str, module: str) -> None:
    run, calm = make_run(), make_run()
    told = _told(run)
    with _flip(target=target, tensor=module, bit=27).inject(run), _outputs(run, module) as faulty:
        run.train_step()
    with _outputs(calm, module) as healthy:
        calm.train_step()
    (note,) = told
    assert [len(faulty), len(healthy)] == [2, 2]
    for worker in (0, 1):
        expected = {tuple(note["position"]): 1 << 27} if worker == note["worker"] else {}
        assert _changed(healthy[worker], faulty[worker]) == expected
    assert (note["tensor"], note["target"], note["stage"]) == (module, target, "forward")
    assert note["before"] == healthy[note["worker"]][tuple(note["position"])].item()
    assert note["after"] == faulty[note["worker"]][tuple(note["position"])].item()


def test_what_comes_after_reads_the_flipped_value_in_both_passes(make_run: MAKE) -> None:
    """The gradient of the last matrix is a sum over tokens of (what came in) × (error): only with the flipped input."""
    run, calm = make_run(workers=1), make_run(workers=1)
    faulty, healthy = Notes(run), Notes(calm)
    fault = _flip(target="activation", tensor="model.norm", bit=31)
    with fault.inject(run), _outputs(run, "model.norm") as inputs, _outputs(run, "lm_head") as logits:
        run.train_step()
    calm.train_step()
    labels = torch.from_numpy(run.corpus.batch(0, 1, 4, 16))
    error = logits[0].softmax(-1)[:, :-1] - torch.nn.functional.one_hot(labels[:, 1:], 256)
    by_hand = torch.einsum("btv,bth->vh", error, inputs[0][:, :-1]) / (4 * 15)
    torch.testing.assert_close(faulty.gradients["lm_head.weight"], by_hand, rtol=1e-4, atol=1e-6)
    assert not torch.equal(faulty.gradients["lm_head.weight"], healthy.gradients["lm_head.weight"])


def test_the_gradient_passes_straight_through_a_flip(make_run: MAKE) -> None:
    """The matrix that made the product does not know: its own gradient is (its input) × (what comes back)."""
    run = make_run(workers=1)
    notes = Notes(run)
    coming_back: list[Tensor] = []
    module = run.model.get_submodule(O)
    with _flip(target="matmul", tensor=O, bit=31).inject(run), ExitStack() as stack:
        inputs: list[Tensor] = []
        stack.callback(module.register_forward_pre_hook(lambda _, given: inputs.append(given[0].detach())).remove)
        stack.callback(module.register_full_backward_hook(lambda _, __, back: coming_back.append(back[0])).remove)
        run.train_step()
    by_hand = torch.einsum("bto,bti->oi", coming_back[0], inputs[0])
    torch.testing.assert_close(notes.gradients[f"{O}.weight"], by_hand, rtol=1e-4, atol=1e-8)


def test_backward_it_is_the_gradient_with_regard_to_the_layers_input(make_run: MAKE) -> None:
    module = "model.layers.1.mlp.down_proj"
    run, calm = make_run(workers=1), make_run(workers=1)
    faulty, healthy, products = Notes(run), Notes(calm), []
    with _flip(target="matmul", stage="backward", tensor=module, bit=28).inject(run):
        run.train_step()
    handle = calm.model.get_submodule(module).register_full_backward_hook(lambda _, into, __: products.append(into[0]))
    calm.train_step()
    handle.remove()
    (note,) = faulty.told
    assert (note["tensor"], note["stage"], note["worker"]) == (module, "backward", 0)
    assert list(products[0].shape) == [4, 16, 192]
    assert note["before"] == products[0][tuple(note["position"])].item()
    assert note["after"] == flip_bit(products[0], tuple(note["position"]), 28).after
    above = {f"{module}.weight", "model.norm.weight", "lm_head.weight"}
    touched = set(_all_changed(healthy.gradients, faulty.gradients))
    assert not touched & above
    assert {"model.layers.1.mlp.up_proj.weight", "model.layers.0.self_attn.q_proj.weight"} <= touched


@pytest.mark.parametrize(("persistence", "count"), [("transient", 1), ("recurring", 3), ("permanent", 3)])
def test_a_worker_keeps_failing_as_the_persistence_says(make_run: MAKE, persistence: str, count: int) -> None:
    run = make_run(learning_rate=0.0, workers=4)
    told = _told_of(run, 3, target="activation", bit=29, persistence=persistence, flips_per_step=1.0)
    assert [note["step"] for note in told] == [1, 2, 3][:count]
    assert len({note["worker"] for note in told}) == 1
    assert len({note["tensor"] for note in told}) == 1
    assert len({note["index"] for note in told}) == (3 if persistence == "recurring" else 1)


def test_a_lost_worker_computes_nothing_wrong(make_run: MAKE) -> None:
    run = trained(make_run(), 1)
    run.lose_worker(0)
    for _ in range(4):
        assert _told_of(run, target="activation", bit=0)[-1]["worker"] == 1


def test_an_evaluation_is_not_disturbed(make_run: MAKE, twin_of: MAKE) -> None:
    run = trained(make_run(), 2)
    with _flip(target="activation", persistence="permanent").inject(run):
        run.train_step()
        inside = run.held_out_loss("judge")
    assert inside == run.held_out_loss("judge")


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing_enable:FutureWarning")  # its name changes
def test_a_layer_that_is_computed_again_for_its_gradient_fails_once(make_run: MAKE) -> None:
    run = make_run()
    run.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    told = _told(run)
    fault = _flip(target="matmul", tensor=Q, bit=27, persistence="recurring", flips_per_step=1.0)
    with fault.inject(run), _outputs(run, Q) as outputs:
        trained(run, 2)
    assert len(outputs) == 8  # twice for each of two workers in two steps
    assert [note["step"] for note in told] == [1, 2]


def test_an_output_that_is_no_tensor_is_the_users_error(make_run: MAKE) -> None:
    run = make_run()
    with (
        pytest.raises(UserError, match="the output of model is no tensor of numbers; name another module with tensor="),
        _flip(target="activation", tensor="model").inject(run),
    ):
        run.train_step()


# --- which tensor ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "typical"),
    [("weight", "_proj.weight"), ("gradient", "_proj.weight"), ("activation", ""), ("matmul", "_proj")],
)
def test_without_a_name_one_within_the_layers_is_drawn_from_the_seed(make_run: MAKE, target: str, typical: str) -> None:
    drawn = []
    for seed in (0, 0, 1, 2, 3, 4, 5):
        (note,) = _told_of(make_run(seed=seed), target=target, bit=0)
        drawn.append(tuple(note[key] for key in ("tensor", "index", "before")))
    assert drawn[0] == drawn[1]
    names = {name for name, _, _ in drawn}
    assert len(names) > 1
    assert all(name.startswith("model.layers.") and name.endswith(typical) for name in names)


@pytest.mark.parametrize(
    ("pattern", "fitting"),
    [
        ("lm_head", {"lm_head.weight"}),
        ("norm", {"model.norm.weight"}),
        (
            "layernorm",
            {f"model.layers.{layer}.{name}_layernorm.weight" for layer in "01" for name in ("input", "post_attention")},
        ),
        ("layers.1.*o_proj", {f"{O}.weight"}),
        ("layers.?.self_attn.o_proj", {f"{O}.weight", "model.layers.0.self_attn.o_proj.weight"}),
    ],
)
def test_a_part_of_the_name_will_do(make_run: MAKE, pattern: str, fitting: set[str]) -> None:
    assert {_told_of(make_run(seed=seed), tensor=pattern, bit=0)[0]["tensor"] for seed in range(12)} == fitting


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"tensor": "o_prj"}, r"no weight fits tensor=o_prj; did you mean o_proj\?"),
        ({"tensor": "zzz"}, "no weight fits tensor=zzz$"),
        ({"tensor": "norm", "target": "matmul"}, "no matmul fits tensor=norm"),
    ],
)
def test_a_name_that_fits_nothing_is_the_users_error(make_run: MAKE, parameters: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message), _flip(**parameters).inject(make_run()):
        pass


def test_frozen_parameters_have_weights_but_no_gradients(make_run: MAKE) -> None:
    run = make_run()
    run.model.get_submodule(Q).weight.requires_grad_(False)
    with pytest.raises(UserError, match="no gradient fits"), _flip(target="gradient", tensor=Q).inject(run):
        pass
    assert _told_of(run, tensor=Q)[0]["tensor"] == f"{Q}.weight"


def test_a_model_without_layers_needs_a_name(make_run: MAKE) -> None:
    run = make_run()
    run.model = torch.nn.Sequential(torch.nn.Linear(3, 3))
    with (
        pytest.raises(UserError, match="no weight within a list of layers to draw from; name one with tensor="),
        _flip().inject(run),
    ):
        pass
    with _flip(tensor="0.weight").inject(run):
        pass


# --- other types of numbers ------------------------------------------------------------------------------------------


def test_in_bfloat16_the_same_bit_is_hit(make_run: MAKE) -> None:
    run = make_run()
    run.model.bfloat16()
    (note,) = _told_of(run, bit=30)
    assert (note["bit"], note["bit_part"], note["dtype"]) == (14, "exponent", "bfloat16")
    assert abs(note["after"]) == pytest.approx(abs(note["before"]) * 2.0**128)


@pytest.mark.parametrize("target", ["weight", "gradient", "activation"])
def test_a_bit_that_bfloat16_lacks_is_refused_on_entering(make_run: MAKE, target: str) -> None:
    run = make_run()
    run.model.bfloat16()
    with (
        pytest.raises(UserError, match="bfloat16 numbers have no mantissa bit as low as 5; choose bit 16 or above"),
        _flip(target=target, bit=5).inject(run),
    ):
        pass


def test_under_autocast_the_product_has_the_type_it_is_computed_in(make_run: MAKE) -> None:
    run = make_run(autocast=torch.bfloat16)
    (note,) = _told_of(run, target="matmul", bit=20)
    assert (note["dtype"], note["bit"]) == ("bfloat16", 4)
    with (
        pytest.raises(UserError, match="bfloat16 numbers have no mantissa bit"),
        _flip(target="matmul", bit=5).inject(run),
    ):
        pass


# --- what it does to a run -------------------------------------------------------------------------------------------


def test_the_top_exponent_bit_in_an_output_projection_makes_every_token_alike(make_run: MAKE) -> None:
    run = trained(make_run(), 3)
    notes = Notes(run)
    with _flip(tensor=f"{O}.weight").inject(run):
        losses = [run.train_step().item() for _ in range(2)]
    assert abs(notes.told[0]["after"]) > 1e34
    assert losses == pytest.approx([math.log(256)] * 2, rel=1e-6)
    assert not any(bool(gradient.any()) for gradient in notes.gradients.values())  # no NaN either: a NaN counts as any


def test_the_severities_flip_what_they_say(make_run: MAKE) -> None:
    found = {}
    for severity in ("low", "medium", "high"):
        fault = make_fault("SILENT_DATA_CORRUPTION", severity)
        found[severity] = (fault.target, fault.bit, fault.persistence)
    assert found == {
        "low": ("weight", 20, "transient"),
        "medium": ("gradient", 30, "recurring"),
        "high": ("weight", 30, "transient"),
    }


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"bit": 32}, r"no bit=32; choose 0 to 22 \(mantissa\), 23 to 30 \(exponent\), 31 \(sign\)"),
        ({"flips_per_step": 1.5}, "flips_per_step=1.5; choose at most 1"),
        ({"stage": "backward"}, "stage=backward for target=matmul only, not for target=weight"),
    ],
)
def test_wrong_parameters_are_the_users_error(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"SILENT_DATA_CORRUPTION has {message}"):
        _flip(**parameters)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["weight", "gradient", "activation", "matmul", "optimizer"])
@pytest.mark.parametrize("persistence", ["transient", "recurring", "permanent"])
def test_the_twin_is_untouched(make_run: MAKE, twin_of: MAKE, target: str, persistence: str) -> None:
    run = trained(make_run(), 2)
    twin = twin_of(run)
    with _flip(target=target, persistence=persistence, tensor="q_proj" if target != "optimizer" else "").inject(run):
        trained(run, 3)
        trained(twin, 3)
    assert same_bits(twin.state_dict(), trained(make_run(), 5).state_dict())
    assert not same_bits(run.state_dict(), twin.state_dict())
