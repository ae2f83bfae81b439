"""trainer_state.json of the Hugging Face Trainer."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmetric.batches import NumberedEvent
from rmetric.errors import UserError
from rmetric.importers import read_trainer_state
from rmetric.importers.trainer_state import BLOCK_CHARACTERS, MAX_ENTRY_CHARACTERS

Damage = list[tuple[int, str]]


def history() -> list[dict[str, Any]]:
    """As the Trainer writes it: training every 10 steps, evaluation every 20, a NaN, a closing entry."""
    entries: list[dict[str, Any]] = []
    for step in range(10, 101, 10):
        loss = math.nan if step == 70 else 3.0 - step / 100
        entries.append({"epoch": step / 50, "grad_norm": 1.5, "learning_rate": 1e-4, "loss": loss, "step": step})
        if step % 20 == 0:
            entries.append({"epoch": step / 50, "eval_loss": 3.1 - step / 100, "eval_runtime": 2.0, "step": step})
    entries.append({"epoch": 2.0, "step": 100, "total_flos": 1e15, "train_loss": 2.45, "train_runtime": 60.0})
    return entries


def state(entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {"best_metric": None, "epoch": 2.0, "global_step": 100, "log_history": entries, "max_steps": 100}


def read(tmp_path: Path, content: str | bytes, **mapping: str) -> tuple[list[NumberedEvent], Damage]:
    file = tmp_path / "trainer_state.json"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    damage: Damage = []
    return list(read_trainer_state(file, mapping, lambda line, message: damage.append((line, message)))), damage


@pytest.mark.parametrize("indent", [2, None])
def test_training_and_evaluation_of_one_step_are_one_record(tmp_path: Path, indent: int | None) -> None:
    events, damage = read(tmp_path, json.dumps(state(history()), indent=indent))
    records = [event for _, event in events]
    assert [record["step"] for record in records] == list(range(10, 101, 10))
    assert records[1] == {
        "step": 20, "training_loss": 2.8, "grad_norm": 1.5, "learning_rate": 1e-4, "validation_loss": 2.9,
    }  # fmt: skip
    assert "validation_loss" not in records[0]
    assert not damage


def test_a_bare_nan_was_measured_and_is_not_finite(tmp_path: Path) -> None:
    events, _ = read(tmp_path, json.dumps(state(history())))
    assert events[6][1]["training_loss"] == math.inf


def test_the_mean_loss_of_the_closing_entry_is_no_observation(tmp_path: Path) -> None:
    events, _ = read(tmp_path, json.dumps(state(history())))
    assert 2.45 not in [event.get("training_loss") for _, event in events]


def test_one_of_several_evaluation_sets_is_chosen_by_the_mapping(tmp_path: Path) -> None:
    entries = [{"step": 1, "loss": 1.0}, {"step": 1, "eval_wiki_loss": 2.0}, {"step": 1, "eval_code_loss": 3.0}]
    events, _ = read(tmp_path, json.dumps(state(entries)), validation_loss="eval_code_loss")
    assert [event for _, event in events] == [{"step": 1, "training_loss": 1.0, "validation_loss": 3.0}]


def test_line_numbers_are_those_of_the_entries(tmp_path: Path) -> None:
    text = json.dumps(state(history()), indent=2)
    events, _ = read(tmp_path, text)
    lines = text.splitlines()
    assert len(events) == 10
    for line, event in events:
        assert lines[line - 1].strip() == "{"
        assert any(f'"step": {event["step"]}' in nearby for nearby in lines[line : line + 6])


@pytest.mark.parametrize("indent", [2, None])
def test_entries_before_a_cut_are_used(tmp_path: Path, indent: int | None) -> None:
    text = json.dumps(state(history()), indent=indent)
    events, damage = read(tmp_path, text[: text.index('"step": 80') + 4])
    assert [event["step"] for _, event in events] == list(range(10, 71, 10))
    assert any("cut off" in message for _, message in damage)


def test_a_damaged_entry_is_skipped_and_the_next_one_found(tmp_path: Path) -> None:
    text = json.dumps(state(history()), indent=2)
    broken = text.replace('"step": 30', '"step": 30 oops', 1)
    events, damage = read(tmp_path, broken)
    assert [event["step"] for _, event in events] == [10, 20, *range(40, 101, 10)]
    assert len(damage) == 1


def test_bad_utf8_is_reported_at_its_entry(tmp_path: Path) -> None:
    entries = [{"step": 1, "loss": 1.0, "note": "X"}, {"step": 2, "loss": 1.0}]
    events, damage = read(tmp_path, json.dumps(state(entries)).encode().replace(b'"X"', b'"\xff"'))
    assert len(events) == 2
    assert damage == [(1, "not UTF-8; the bad bytes were replaced")]


def test_a_bare_list_of_entries_is_read_as_well(tmp_path: Path) -> None:
    events, damage = read(tmp_path, json.dumps([{"step": 1, "loss": 1.0}, 3]))
    assert len(events) == 1
    assert [message for _, message in damage] == ["an entry must be a JSON object, not int; skipped"]


def test_a_history_that_lies_deep_in_the_file_is_found(tmp_path: Path) -> None:
    padding = {"a": "[ , " * BLOCK_CHARACTERS}
    events, damage = read(tmp_path, json.dumps({**padding, **state([{"step": 1, "loss": 1.0}])}))
    assert len(events) == 1
    assert not damage


def test_an_entry_without_end_does_not_swallow_the_memory(tmp_path: Path) -> None:
    text = '{"log_history": [{"step": 1, "loss": 1.0, "x": "' + "y" * (4 * MAX_ENTRY_CHARACTERS)
    events, damage = read(tmp_path, text)
    assert not events
    assert damage


def test_a_json_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no log_history"):
        read(tmp_path, '{"log_history": null}')


def test_an_empty_file_has_no_entries(tmp_path: Path) -> None:
    assert read(tmp_path, "") == ([], [])


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(noise=st.binary(max_size=200), at=st.integers(0, 400))
def test_no_damage_crashes_it(tmp_path: Path, noise: bytes, at: int) -> None:
    content = json.dumps(state(history())).encode()
    try:
        events, _ = read(tmp_path, content[:at] + noise + content[at + len(noise) // 2 :])
    except UserError:
        return
    assert all(isinstance(event, dict) for _, event in events)
