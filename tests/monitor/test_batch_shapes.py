"""Batches of another shape announce themselves: when, in which words, and over a resume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rmetric.monitor import TrainingMonitor
from rmetric.monitor.batch_shapes import KNOWN, STEADY, BatchShapes
from rmetric.monitor.repair import ClipGradients
from tests.monitor.common import events_of

LONGER_FROM = 60


def trained(
    length: Callable[[int], int], steps: int = 120, state: dict[str, Any] | None = None, **options: Any
) -> TrainingMonitor:
    """A model sums up sequences; in each step they have so many entries, of 4 numbers."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    with TrainingMonitor(model, optimizer, hardware=False, announce=False, **options) as monitor:
        monitor.load_state_dict(state or {})
        for step in range(monitor.step_number + 1, steps + 1):
            optimizer.zero_grad()
            loss = (model(torch.randn(8, length(step), 4)).sum(1) - 1.0).square().mean()
            loss.backward()
            monitor.step(loss)
            optimizer.step()
    return monitor


def longer(step: int) -> int:
    return 16 if step < LONGER_FROM else 64


def announced(log: Path) -> list[tuple[int, str]]:
    return [(line["step"], line["what"]) for line in events_of(log, "PLANNED_CHANGE")]


WHAT = "batches of (8, 64, 4), not of (8, 16, 4)"


def test_longer_sequences_are_announced_in_their_first_record_and_alert_nobody(tmp_path: Path) -> None:
    monitor = trained(longer, log=tmp_path / "run.jsonl")
    assert announced(tmp_path / "run.jsonl") == [(LONGER_FROM, WHAT)]
    assert monitor.alerts == {}  # the loss is four times as large


@pytest.mark.parametrize(
    "length",
    [
        lambda step: 16 if step % 50 else 12,  # what is left at the end of an epoch
        lambda step: 8 + step % 3,  # padded to the longest example
        lambda step: 16 if step < STEADY else 64,  # not yet known as the shape of batches
        lambda step: 16 if step < LONGER_FROM else 15,  # targets that are shifted twice
        lambda step: 16 if step < LONGER_FROM else 17,
    ],
)
def test_what_differs_now_and_then_or_always_is_no_change(length: Callable[[int], int], tmp_path: Path) -> None:
    trained(length, log=tmp_path / "run.jsonl")
    assert announced(tmp_path / "run.jsonl") == []


def test_shorter_sequences_are_announced_in_their_second_record(tmp_path: Path) -> None:
    trained(lambda step: 16 if step < LONGER_FROM else 8, log=tmp_path / "run.jsonl")
    assert announced(tmp_path / "run.jsonl") == [(LONGER_FROM + 1, "batches of (8, 8, 4), not of (8, 16, 4)")]


def test_a_run_that_is_resumed_with_longer_sequences_announces_them(tmp_path: Path) -> None:
    state = trained(longer, LONGER_FROM - 1).state_dict()
    trained(longer, state=state, log=tmp_path / "run.jsonl")
    assert announced(tmp_path / "run.jsonl") == [(LONGER_FROM, WHAT)]


def test_a_policy_in_one_process_leaves_it_as_it_is(tmp_path: Path) -> None:
    trained(longer, log=tmp_path / "run.jsonl", policy=ClipGradients())
    assert announced(tmp_path / "run.jsonl") == [(LONGER_FROM, WHAT)]


def test_longer_sequences_now_and_then_are_told_of_once_and_those_that_stay_are_told_of_again() -> None:
    shapes = BatchShapes()
    lengths = [16 + (8 * step // 40 if step % 40 == 0 else 0) for step in range(1, 401)] + [64] * 40
    told = []
    for step, length in enumerate(lengths, 1):
        told += [step] if shapes.update(((8, length),)) else []
        resumed = BatchShapes()
        resumed.load_state_dict(shapes.state_dict())
        shapes = resumed if step % 40 == 20 else shapes
    assert told == [40, 402]


@pytest.mark.parametrize(("length", "told"), [(70, False), (71, True), (64, False), (52, False), (51, True)])
def test_a_tenth_more_or_a_fifth_fewer_is_another_shape(length: int, told: bool) -> None:
    shapes = BatchShapes()
    assert any(shapes.update(((1, size),)) for size in [64] * STEADY + [length] * 2) == told


def test_shapes_that_come_in_turn_are_told_of_once_each_and_nothing_grows() -> None:
    shapes = BatchShapes()
    told = [shapes.update(((length, 4),)) for _ in range(3) for length in (8, 16, 32) for _ in range(STEADY)]
    assert [place for place, change in enumerate(told) if change] == [STEADY, 2 * STEADY]
    for length in range(3 * KNOWN):
        for _ in range(STEADY):
            shapes.update(((length, 4),))
    assert len(shapes.state_dict()["known"]) == KNOWN
