"""Numbers that changed in memory are put back."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rmetric.faults import make_fault
from rmetric.log_reader import read_log
from rmetric.monitor.repair import RecomputeStep, RepairRecord, RestoreState
from tests.live.live import make_live_run, train, watched
from tests.monitor.repair.common import DRAWS, Noisy, Toy, equal, same_to_the_last_bit, state_bits


@pytest.mark.slow
@pytest.mark.parametrize("target", ["weight", "optimizer"])
@pytest.mark.parametrize("bit", [30, 20])
def test_a_flipped_number_is_restored_to_the_last_bit(target: str, bit: int, tmp_path: Path) -> None:
    twin = make_live_run(workers=2)
    train(twin, 9)
    expected = state_bits(twin)
    run = make_live_run(workers=2)
    with watched(run, log=tmp_path / "run.jsonl", policy=[RestoreState(), RecomputeStep()]) as monitor:
        train(run, 5)
        with make_fault("SILENT_DATA_CORRUPTION", "high", target=target, bit=bit).inject(run):
            train(run, 4)
        [repair] = monitor.repairs
    assert same_to_the_last_bit(run, expected)
    events = read_log(tmp_path / "run.jsonl").events
    [flip] = [event for event in events if event["event"] == "CORRUPTION"]
    [told] = [event for event in events if event["event"] == "REPAIR"]
    assert (repair.step, repair.policy, repair.verdict) == (6, "RestoreState", "restored")
    assert repair.differing == (flip["tensor"],)
    [element] = told["elements"]
    assert (element["tensor"], element["index"]) == (flip["tensor"], flip["index"])
    assert element["sound"] == pytest.approx(flip["before"], rel=1e-6)


@pytest.mark.parametrize("bit", [30, 31])
def test_a_bit_that_is_stuck_is_put_back_every_time(bit: int) -> None:
    run = make_live_run()
    with watched(run, policy=RestoreState(max_interventions=3)) as monitor:
        train(run, 2)
        with make_fault("SILENT_DATA_CORRUPTION", "high", persistence="permanent", bit=bit).inject(run):
            train(run, 5)
        assert [repair.step for repair in monitor.repairs] == [3, 4, 5]


def test_weights_that_somebody_loads_are_left_alone() -> None:
    toy = Toy()
    with toy.watch(policy=RestoreState()) as monitor:
        toy.train(3, monitor)
        with torch.no_grad():
            for parameter in toy.model.parameters():
                parameter.mul_(0.5)
        before = toy.bits()
        toy.train(1, monitor)
        assert monitor.repairs == []
    assert not equal(before, toy.bits())


def test_without_recompute_the_update_is_left_out() -> None:
    toy = Toy()
    with toy.watch(policy=RestoreState()) as monitor:
        toy.train(3, monitor)
        before = [parameter.clone() for parameter in toy.model.parameters()]
        with torch.no_grad():
            toy.model[0].weight[0, 0] += 1.0
        assert toy.train(1, monitor, recompute=False) == [False]
    assert equal(before, list(toy.model.parameters()))


@pytest.mark.parametrize("between", [False, True])
def test_the_update_of_a_step_that_draws_before_its_forward_pass(between: bool) -> None:
    toy = Noisy(DRAWS["torch"], between=between)
    with toy.watch(policy=RestoreState()) as monitor:
        toy.train(3, monitor)
        with torch.no_grad():
            toy.model[0].weight[0, 0] += 1.0
        assert toy.train(2, monitor) == [not between, True]
    twin = Noisy(DRAWS["torch"])
    twin.train(5)
    assert between or equal(toy.bits(), twin.bits())


def test_a_rehearsal_in_the_step_of_a_flip_begins_with_what_was_restored() -> None:
    twin, toy = Toy(), Toy()
    for each in (twin, toy):  # suspicious with the right weight, too
        each.corrupt = lambda computation, each=each: [p.grad.zero_() for p in each.model.parameters()]  # type: ignore
        each.flip_in = {3: 99}
    twin.train(4)
    with toy.watch(policy=[RestoreState(), RecomputeStep()]) as monitor:
        toy.train(2, monitor)
        with torch.no_grad():
            toy.model[0].weight[0, 0] = torch.nan
        assert all(toy.train(2, monitor))
        assert [repair.verdict for repair in monitor.repairs] == ["restored"]
    assert equal(toy.bits(), twin.bits())


def test_it_may_look_less_often() -> None:
    toy = Toy()
    with toy.watch(policy=RestoreState(check_every=3)) as monitor:
        for step in range(1, 10):
            toy.train(1, monitor)
            if step == 6:  # after the update that the copy was made of
                with torch.no_grad():
                    toy.model[0].weight[0, 0] += 1.0
        assert [repair.step for repair in monitor.repairs] == [7]


def test_an_optimizer_whose_state_was_loaded_anew_is_watched_from_its_next_update_on() -> None:
    toy = Toy(kind=torch.optim.AdamW)
    with toy.watch(policy=RestoreState()) as monitor:
        toy.train(3, monitor)
        toy.optimizer.load_state_dict(toy.optimizer.state_dict())
        toy.train(2, monitor)
        toy.optimizer.state[toy.model[0].weight]["exp_avg"].view(-1)[3] = 7.0
        toy.train(1, monitor)
        assert [(repair.step, repair.differing) for repair in monitor.repairs] == [(6, ("0.weight.exp_avg",))]


@pytest.mark.parametrize(("every", "put_back"), [(1, [2, 3]), (2, [3, 5])])
def test_a_number_that_a_loop_clamps_is_meant(every: int, put_back: list[int]) -> None:
    toy = Toy()
    scale = toy.model[0].bias  # as CLIP's temperature
    with toy.watch(policy=RestoreState()) as monitor:
        for step in range(1, 11):
            toy.train(1, monitor)
            if step % every == 0:
                with torch.no_grad():
                    scale[0].fill_(0.1)
        assert [repair.step for repair in monitor.repairs] == put_back
    assert scale[0].item() == pytest.approx(0.1)


def test_weights_that_a_loop_clamps_here_and_there_are_meant_and_a_stuck_bit_is_not() -> None:
    toy = Toy()
    weight = toy.model[0].weight
    with toy.watch(policy=RestoreState()) as monitor:
        for step in range(1, 16):
            toy.train(1, monitor)
            with torch.no_grad():
                if step % 2:
                    weight.view(-1)[step] = 0.1
                elif step > 10:
                    weight.view(torch.int32).view(-1)[1] ^= 1 << 30
        assert [repair.step for repair in monitor.repairs] == [2, 4, 13, 15]
    assert weight.view(-1)[15].item() == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("start", "change", "put_back", "end"),
    [
        (torch.tensor(4.0), lambda number: number.mul_(0.5), [3, 5], 0.5),  # 4 to 2 is one bit
        (torch.tensor(0), lambda number: number.add_(1), [3, 5], 3),
    ],
)
def test_a_frozen_number_that_a_program_changes_by_single_bits_is_meant(
    start: Tensor, change: Callable[[Tensor], Any], put_back: list[int], end: float, caplog: pytest.LogCaptureFixture
) -> None:
    toy = Toy()
    number = nn.Parameter(start, requires_grad=False)
    toy.model.register_parameter("number", number)
    with toy.watch(policy=RestoreState()) as monitor:
        for step in range(1, 12):
            toy.train(1, monitor)
            if step % 2 == 0:
                change(number)
        assert [repair.step for repair in monitor.repairs] == put_back
    assert number.item() == end
    [told] = [message for message in caplog.messages if "takes what changes there for meant" in message]
    assert told.startswith("step 7: RestoreState has put back number before")


@pytest.mark.parametrize(
    ("sound", "flips"),
    [
        ([1.0, -0.02, 0.3], [(1, 1 << 27), (2, -(1 << 31)), (0, 1 << 30)] * 5),  # each is a weak cell
        ([1.0] * 8, [(place, 1 << 30) for place in range(5)]),
    ],
)
def test_bits_of_a_frozen_tensor_are_put_back_every_time_and_wherever_they_are(
    sound: list[float], flips: list[tuple[int, int]]
) -> None:
    toy = Toy()
    frozen = nn.Parameter(torch.tensor(sound), requires_grad=False)
    toy.model.register_parameter("frozen", frozen)
    with toy.watch(policy=RestoreState()) as monitor:
        for place, bit in flips:
            toy.train(1, monitor)
            frozen.view(torch.int32)[place] ^= bit
        toy.train(1, monitor)
        assert len(monitor.repairs) == len(flips)
    assert torch.equal(frozen, torch.tensor(sound))


@pytest.mark.parametrize("resumed", [False, True])
def test_what_changes_on_purpose_every_time_leaves_the_others_guarded(
    resumed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    toy = Toy()
    teacher = copy.deepcopy(toy.model).requires_grad_(False)
    toy.model.teacher, toy.watched = teacher, nn.Sequential(*toy.model)

    def train(steps: int) -> None:
        for _ in range(steps):
            toy.train(1, monitor)
            for old, new in zip(teacher.parameters(), toy.watched.parameters(), strict=True):
                old.lerp_(new.detach(), 0.1)

    monitor = toy.watch(policy=RestoreState())
    train(5)
    if resumed:
        state = monitor.state_dict()
        monitor.close()
        monitor = toy.watch(policy=RestoreState())
        monitor.load_state_dict(state)
    with torch.no_grad():
        toy.model[0].weight[0, 0] += 1.0
    train(1)
    monitor.close()
    assert [repair.differing for repair in monitor.repairs] == [("0.weight",)]
    [told] = caplog.messages
    assert told.startswith("step 3: RestoreState no longer watches 5 tensor(s)")


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_a_tensor_of_a_layout_that_cannot_be_compared_leaves_the_others_guarded() -> None:
    toy = Toy()
    mask = nn.Parameter(torch.eye(3).to_sparse_csr(), requires_grad=False)
    toy.model.register_parameter("mask", mask)
    with toy.watch(policy=RestoreState()) as monitor:
        toy.train(3, monitor)
        with torch.no_grad():
            toy.model[0].weight[0, 0] += 1.0
        toy.train(1, monitor)
        assert [repair.differing for repair in monitor.repairs] == [("0.weight",)]


def test_what_another_optimizer_updates_is_not_watched() -> None:
    def train(**options: Any) -> tuple[Toy, list[RepairRecord]]:
        toy = Toy()
        temperature = nn.Parameter(torch.zeros(1))
        toy.model.register_parameter("temperature", temperature)
        other = torch.optim.Adam([temperature], lr=0.01)
        with toy.watch(**options) as monitor:
            for step in range(20):
                toy.train(1, monitor)
                if step % 2:
                    (temperature.exp() - 2.0).square().sum().backward()
                    other.step()
                    other.zero_grad()
        return toy, monitor.repairs

    toy, repairs = train(policy=RestoreState())
    assert repairs == []
    assert equal(toy.bits(), train()[0].bits())


def put(place: int, value: complex) -> Callable[[Tensor], None]:
    return lambda numbers: numbers.__setitem__(place, value)


@pytest.mark.parametrize(
    ("sound", "change", "element"),
    [
        (torch.ones(3), put(1, -7.0), {"index": 1, "sound": 1.0, "corrupted": -7.0}),  # as under an adapter
        (torch.tensor([1 + 2j, 3 + 4j]), put(1, 3 + 5j), {"index": 3, "sound": 4.0, "corrupted": 5.0}),
        (torch.tensor([False, True]), put(0, True), {"index": 0, "sound": 0, "corrupted": 1}),
        (torch.tensor([0, 1], dtype=torch.uint16), put(0, 1), {"index": 0, "sound": 0, "corrupted": 1}),
        (
            torch.zeros(2, dtype=torch.uint8).view(torch.bits8),  # a type that cannot be read
            lambda packed: put(1, 4)(packed.data.view(torch.uint8)),
            {"index": 1, "sound": 0, "corrupted": 4},
        ),
    ],
    ids=["float", "complex", "flag", "unsigned", "packed"],
)
def test_a_frozen_number_that_changes_is_put_back(
    sound: Tensor, change: Callable[[Tensor], None], element: dict[str, float]
) -> None:
    toy, before = Toy(), sound.view(torch.uint8).tolist()
    numbers = nn.Parameter(sound, requires_grad=False)
    toy.model.register_parameter("numbers", numbers)
    with toy.watch(policy=RestoreState()) as monitor:
        toy.train(3, monitor)
        change(numbers)
        toy.train(1, monitor)
        [repair] = monitor.repairs
    assert (repair.verdict, repair.differing) == ("restored", ("numbers",))
    assert repair.details["elements"] == [{"tensor": "numbers", **element}]
    assert numbers.data.view(torch.uint8).tolist() == before
