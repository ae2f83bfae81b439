from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import rmetric
from rmetric.batches import NumberedEvent, RecordBatch
from rmetric.errors import UserError
from rmetric.line_pattern import LinePattern  # imports Numba: from then on patterns are used
from rmetric.log_lines import BLOCK_BYTES, MAX_LINE_BYTES, OnDamage, numbered_lines, read_batches, read_events
from rmetric.log_reader import assemble, chunks, read_log
from rmetric.log_writer import encode_event, encode_metrics, to_log_precision
from rmetric.measurements import MEASUREMENTS
from rmetric.records import Observations, held
from tests.helpers import any_observations, bits, lines_of

NAN, INF = math.nan, math.inf
START = b'{"event": "EXPERIMENT_START", "config": {"fault_injection": {"type": "LR_SPIKE", "severity": "low"}}}\n'
END = b'{"event": "EXPERIMENT_SUCCESS", "step": 30}\n'


def _write(tmp_path: Path, *lines: bytes) -> Path:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def _read(tmp_path: Path, *lines: bytes) -> tuple[Observations, list[tuple[int, str]]]:
    damage: list[tuple[int, str]] = []
    run = read_log(_write(tmp_path, *lines), lambda line, message: damage.append((line, message)))
    return run.observations, damage


def _undamaged(line: int, message: str) -> None:
    pytest.fail(f"line {line}: {message}")


def test_what_the_mechanism_monitors_measured_is_read_back(tmp_path: Path) -> None:
    log = tmp_path / "run.jsonl"
    measured = {"qk_entropy": 0.5, "non_finite": ["query_norm"], "unheard_of": 1.0}
    records = [{"step": 1, "training_loss": 2.0}, {"step": 2, "training_loss": 2.0, "mechanism": measured}]
    log.write_bytes(b"".join(encode_event({"event": "METRICS", **record}) for record in records))
    observations = read_log(log).observations
    assert bits(observations["qk_entropy"]) == bits([NAN, 0.5])
    assert bits(observations["query_norm"]) == bits([NAN, INF])
    assert not observations.has("key_norm")
    assert [row.mechanism for row in observations] == [{}, {"qk_entropy": 0.5, "query_norm": INF}]


def test_damage_in_what_the_mechanism_monitors_measured_is_reported(tmp_path: Path) -> None:
    log, damage = tmp_path / "run.jsonl", []
    records = [{"step": 1, "mechanism": 3}, {"step": 2, "mechanism": {"key_norm": "long"}}]
    log.write_bytes(b"".join(encode_event({"event": "METRICS", **record}) for record in records))
    run = read_log(log, lambda line, message: damage.append((line, message)))
    assert len(run.observations) == 2
    assert damage == [
        (1, "mechanism is '3', not an object; taken as not measured"),
        (2, "key_norm is 'long', not a number; taken as not measured"),
    ]


@given(any_observations(("training_loss", "grad_norm", "lambda", "sigma_sq", "non_finite_count"), max_size=12))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, observations: Observations) -> None:
    floats = {name: to_log_precision(column) for name, column in observations.columns.items()}
    lines = encode_metrics(observations.step, floats, {"alerts": [{"loss_spike": 3}] * len(observations)})
    path = _write(tmp_path_factory.mktemp("round-trip"), START, lines, END)
    run = read_log(path)
    assert run.observations.step.tolist() == observations.step.tolist()
    for name in MEASUREMENTS:
        # λ is the latest known where a record leaves it out.
        expected = (
            held(to_log_precision(observations[name])) if name == "lambda" else to_log_precision(observations[name])
        )
        assert bits(run.observations[name]) == bits(expected), name
    assert run.alerts == ({"loss_spike": 3} if len(observations) else {})
    assert (run.fault, run.severity) == ("LR_SPIKE", "low")


def test_bare_nan_and_infinity_are_measured_and_not_finite(tmp_path: Path) -> None:
    line = b'{"event": "METRICS", "step": 10, "training_loss": NaN, "grad_norm": Infinity, "sigma_sq": -Infinity}\n'
    observations, damage = _read(tmp_path, START, line, END)
    assert [observations[name].tolist() for name in ("training_loss", "grad_norm", "sigma_sq")] == [[INF], [INF], [INF]]
    assert damage == []


@pytest.mark.parametrize("named", [b'["training_loss"]', b'"training_loss"', b"5", b"null", b"[[1], 7, null]", b"{}"])
def test_a_strange_list_of_non_finite_names_breaks_nothing(tmp_path: Path, named: bytes) -> None:
    line = b'{"event": "METRICS", "step": 10, "grad_norm": NaN, "non_finite": ' + named + b"}\n"
    strict = b'{"event": "METRICS", "step": 20, "grad_norm": 1.0, "non_finite": ' + named + b"}\n"
    observations, _ = _read(tmp_path, START, line, strict, END)
    assert observations["grad_norm"].tolist() == [INF, 1.0]
    assert observations.has("training_loss") == (named == b'["training_loss"]')


@pytest.mark.parametrize("number", [b"1e400", b"-1e999", b"1" + b"0" * 400])
def test_a_number_beyond_double_precision_is_not_finite(tmp_path: Path, number: bytes) -> None:
    observations, _ = _read(
        tmp_path, START, b'{"event": "METRICS", "step": 10, "training_loss": ' + number + b"}\n", END
    )
    assert observations["training_loss"].tolist() == [INF]


def test_what_is_no_strict_json_is_read_as_what_strict_json_can_hold(tmp_path: Path) -> None:
    config = b'{"whole": 1%b, "negative": -%d, "kept": %d, "half": "a\\ud83d", "pair": "\\ud83d\\ude00", "no": NaN}'
    config %= b"0" * 400, 2**70, 2**64 - 1
    run = read_log(_write(tmp_path, b'{"event": "EXPERIMENT_START", "config": ' + config + b"}\n", END))
    assert math.isnan(run.config.pop("no"))
    assert run.config == {"whole": INF, "negative": -(2.0**70), "kept": 2**64 - 1, "half": "a?", "pair": "\U0001f600"}


@pytest.mark.parametrize(
    ("text", "value"),
    [(b'"2.5"', 2.5), (b'"nan"', INF), (b'"-inf"', INF), (b"null", NAN), (b"true", NAN), (b'"x"', NAN), (b"[1]", NAN)],
)
def test_numbers_written_as_text_are_read_and_others_are_damage(tmp_path: Path, text: bytes, value: float) -> None:
    observations, damage = _read(
        tmp_path, START, b'{"event": "METRICS", "step": 10, "training_loss": ' + text + b"}\n", END
    )
    assert bits(observations["training_loss"]) == bits([value])
    assert [line for line, _ in damage] == ([2] if text in (b"true", b'"x"', b"[1]") else [])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{\n", "not JSON"),
        (b"[1, 2]\n", "a JSON object is due, not list"),
        (b'{"event": "METRICS"}\n', "needs a whole number below 2^53 as its step, not None"),
        (b'{"event": "METRICS", "step": 1.5}\n', "whole number below 2^53 as its step, not 1.5"),
        (b'{"event": "METRICS", "step": true}\n', "needs a whole number"),
        (b'{"event": "METRICS", "step": [' + 99 * b"1, " + b"1]}\n", "not [1, 1, 1, 1, 1, 1, ...]; skipped"),
        (b'{"event": "METRICS", "step": -1}\n', "needs a whole number"),
        (b'{"event": "METRICS", "step": 10}\n', "repeats a step"),
        (b'{"event": "METRICS", "step": 5}\n', "goes back in time"),
        (b'{"x": "' + b"a" * MAX_LINE_BYTES + b'"}\n', "longer than 1,048,576 bytes"),
        (b"[" * 200_000 + b"\n", "not JSON"),
    ],
)
def test_a_damaged_line_is_reported_and_skipped(tmp_path: Path, line: bytes, message: str) -> None:
    before, after = b'{"event": "METRICS", "step": 10}\n', b'{"event": "METRICS", "step": 20.0}\n'
    observations, damage = _read(tmp_path, START, before, line, after, END)
    assert observations.step.tolist() == [10, 20]
    assert [number for number, _ in damage] == [3]
    assert message in damage[0][1]


def test_a_line_of_bars_beyond_all_bounds_comes_in_pieces(tmp_path: Path) -> None:
    bars = [b"%d/90000 loss=2.5" % number for number in range(90_000)]
    path = _write(tmp_path, b"begin\n", b"\r".join(bars) + b"\n", b"end\n")
    damage: list[tuple[int, str]] = []
    lines = list(numbered_lines(path, lambda line, message: damage.append((line, message))))
    assert not damage
    assert {number for number, _ in lines} == {1, 2, 3}
    assert b"".join(line for _, line in lines) == path.read_bytes()
    assert all(line.endswith((b"\r", b"\n")) for _, line in lines)
    assert max(len(line) for _, line in lines) <= MAX_LINE_BYTES + BLOCK_BYTES


def test_damage_without_a_listener_is_the_users_error_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"run\.jsonl, line 2: not JSON but text; skipped"):
        read_log(_write(tmp_path, START, b"garbage\n", END))


def test_a_cut_off_log_is_incomplete(tmp_path: Path) -> None:
    path = _write(tmp_path, START, b'{"event": "METRICS", "step": 10}\n', b'{"event": "METR')
    damage: list[tuple[int, str]] = []
    run = read_log(path, lambda line, message: damage.append((line, message)))
    assert damage == [(3, "cut off; skipped")]
    assert run.terminal is None
    assert run.last_step == 10
    with pytest.warns(UserWarning, match=r"run\.jsonl, line 3: cut off; skipped; its writer was killed"):
        assert rmetric.read_run(path).last_step == 10


def test_an_empty_log_is_incomplete(tmp_path: Path) -> None:
    run = read_log(_write(tmp_path))
    assert (run.terminal, run.last_step, len(run.observations), run.fault, run.severity) == (None, 0, 0, "NONE", "-")


def test_byte_order_marks_blank_lines_and_bad_bytes_are_survived(tmp_path: Path) -> None:
    observations, damage = _read(
        tmp_path, b"\xef\xbb\xbf" + START, b"\r\n", b'{"event": "METRICS", "step": 10, "note": "\xff"}\r\n', END
    )
    assert observations.step.tolist() == [10]
    assert damage == [(3, "not UTF-8; the bad bytes were replaced")]


def test_a_character_that_stands_for_bad_bytes_is_none_itself(tmp_path: Path) -> None:
    line = '{"event": "METRICS", "step": 10, "training_loss": NaN, "note": "\ufffd"}\n'
    _, damage = _read(tmp_path, START, line.encode(), END)
    assert not damage


def test_the_run_knows_its_fault_and_its_end(tmp_path: Path) -> None:
    injected = b'{"event": "FAULT_INJECTED", "step": 15, "details": ""}\n'
    run = read_log(_write(tmp_path, START, b'{"event": "METRICS", "step": 10}\n', injected, END))
    assert (run.onset, run.last_step, run.name) == (15, 30, "run")
    assert run.terminal == {"event": "EXPERIMENT_SUCCESS", "step": 30}
    assert run.first("ALERT") is None


def test_validation_loss_is_the_latest_known_and_evaluations_are_marked(tmp_path: Path) -> None:
    values = (
        b"",
        b', "validation_loss": 3.0',
        b"",
        b', "validation_loss": 3.0',
        b', "validation_loss": 2.5',
        b', "validation_loss": 2.5',
    )
    lines = [b'{"event": "METRICS", "step": %d%s}\n' % (10 * (i + 1), value) for i, value in enumerate(values)]
    observations, _ = _read(tmp_path, START, *lines, END)
    assert bits(observations["validation_loss"]) == bits([NAN, 3.0, 3.0, 3.0, 2.5, 2.5])
    assert observations.evaluated.tolist() == [False, True, False, True, True, False]  # type: ignore[union-attr]


@given(any_observations(("training_loss", "lambda", "delta_l"), max_size=12), st.integers(1, 5))
def test_a_log_read_in_chunks_holds_the_same_records(
    tmp_path_factory: pytest.TempPathFactory, observations: Observations, size: int
) -> None:
    floats = {name: to_log_precision(column) for name, column in observations.columns.items()}
    path = _write(tmp_path_factory.mktemp("chunks"), START, encode_metrics(observations.step, floats, {}), END)
    pieces = list(chunks(read_events(path, _undamaged), _undamaged, size=size))
    assert all(len(piece.step) <= size for piece in pieces)
    assert np.concatenate([piece.step for piece in pieces]).tolist() == observations.step.tolist()
    for name in observations.columns:
        raw = np.concatenate([piece.columns.get(name, np.full(len(piece.step), NAN)) for piece in pieces])
        assert bits(raw) == bits(to_log_precision(observations[name]))


RECORD = b'{"event": "METRICS", "step": %d, "training_loss": 2.5, "grad_norm": 1, "alerts": {"loss_spike": 3}}'
ODD_LINES = [
    *(b"", b" \t", b"7", b"null", b"[1, 2]", b"{", b"1,2", b"{},{}", b"{},{},{}", b"\0", b"\x0b"),
    *(b'{"a": [{}', b"{}]}", b'{"a": [[{}', b"{}]]}"),
    *(b"\xef\xbb\xbf{}", b'{"note": "\xc3("}', b'{"note": "gr\xc3\xbc\xc3\x9fe"}', b'{"x": "\\ud800"}'),
    *(
        RECORD.replace(b"2.5", loss) % 9
        for loss in (b"NaN", b"-Infinity", b"1e400", b'"2.5"', b"true", b"null", b"[1]")
    ),
    *(RECORD.replace(b"%d", step) for step in (b"1", b"9e3", b"10.5", b"true", b"-1", b"9007199254740993", b"1" * 40)),
    *(RECORD.replace(b"METRICS", kind) % 9 for kind in (b"VALIDATION", b'", "event": "METRICS')),
    RECORD.replace(b"}}", b'}, "non_finite": ["r_metric"]}') % 9,
    RECORD.replace(b"}}", b'}, "mechanism": {"key_norm": 1}}') % 9,
    *((RECORD % 9)[:50], RECORD % 9 + RECORD % 10, b'{"event": null, "step": 5}'),
]


@st.composite
def damaged_logs(draw: st.DrawFn) -> bytes:
    """Stretches of records, and lines of all kinds between them."""
    lines, step = [], 0
    for length, odd in draw(st.lists(st.tuples(st.sampled_from([0, 1, 7, 8, 20]), st.sampled_from(ODD_LINES)))):
        lines += [RECORD % (step + number) for number in range(length)]
        lines.append(odd)
        step += length
    return draw(st.sampled_from([b"\n", b"\r\n"])).join(lines) + draw(st.sampled_from([b"", b"\n"]))


def _heard(read: Callable[[Path, OnDamage], Iterator[NumberedEvent]], path: Path, size: int) -> str:
    """All chunks and reports of damage, in the order in which they come."""
    said: list[Any] = []
    for chunk in chunks(read(path, lambda *damage: said.append(damage)), lambda *damage: said.append(damage), size):
        columns = {name: bits(column) for name, column in sorted(chunk.columns.items())}
        said.append((chunk.step.tolist(), columns, chunk.events, chunk.alerts))
    return repr(said)


@given(damaged_logs(), st.integers(1, 30), st.sampled_from([1500, BLOCK_BYTES]))
def test_what_is_read_together_is_what_is_read_line_by_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, size: int, block_bytes: int
) -> None:
    path = _write(tmp_path_factory.mktemp("blocks"), content)
    with patch("rmetric.log_lines.BLOCK_BYTES", block_bytes):
        together = _heard(read_events, path, size), _heard(read_batches, path, size)
    with patch("rmetric.log_lines.BLOCK_BYTES", 1):  # each line is a block of its own
        assert together == (_heard(read_events, path, size), _heard(read_events, path, size))


def test_no_line_passes_as_a_part_of_another_one(tmp_path: Path) -> None:
    """Where lines are parsed together, an object over two lines must not make up for two objects in one."""
    observations, damage = _read(tmp_path, START, b'{"a": [{}\n', b"{}]}\n", b"{},{}\n", RECORD % 10 + b"\n", END)
    assert [line for line, _ in damage] == [2, 3, 4]
    assert observations.step.tolist() == [10]


def test_a_log_of_many_records_is_read_in_batches(tmp_path: Path) -> None:
    lines = [RECORD % step + b"\n" for step in range(1, 2000)]
    events = [event for _, event in read_batches(_write(tmp_path, START, *lines, END), _undamaged)]
    batches = [event for event in events if isinstance(event, RecordBatch)]
    assert sum(len(batch.step) for batch in batches) == 1999
    assert len(events) == len(batches) + 2 < 10


def test_lines_that_are_alike_are_read_by_their_pattern(tmp_path: Path) -> None:
    lines = [RECORD % step + b"\n" for step in range(1, 500)]
    with (
        patch("rmetric.log_lines.BLOCK_BYTES", 1500),
        patch.object(LinePattern, "batch", autospec=True, side_effect=LinePattern.batch) as read,
    ):
        run = read_log(_write(tmp_path, START, *lines, END))
    assert read.call_count > 30
    assert run.observations.step.tolist() == list(range(1, 500))
    assert set(run.observations["training_loss"].tolist()) == {2.5}
    assert run.alerts == {"loss_spike": 3}


def test_the_authors_logs_are_read_without_damage(authors_logs: list[Path]) -> None:
    for path in authors_logs:
        run = read_log(path)
        text = [json.loads(line) for line in path.read_text().splitlines()]
        records = [event for event in text if event["event"] == "METRICS"]
        assert run.observations.step.tolist() == [record["step"] for record in records]
        assert run.verdicts["r_metric"].tolist() == [record["r_metric"] for record in records]
        assert run.terminal == text[-1]
        assert not run.observations.has("sigma_sq")


def test_the_real_logs_are_strict_json_and_read_without_damage(real_logs: list[Path]) -> None:
    assert real_logs
    for path in real_logs:
        events = lines_of(path.read_bytes())
        run = read_log(path)
        assert len(run.observations) == sum(event["event"] == "METRICS" for event in events)
        assert run.observations.has("sigma_sq")
        for record, row in zip(
            (event for event in events if event["event"] == "METRICS"), run.observations, strict=True
        ):
            assert row.step == record["step"]
            assert math.isinf(row["grad_norm"]) == ("grad_norm" in record.get("non_finite", []))


@pytest.mark.slow
@given(any_observations(tuple(MEASUREMENTS), max_size=12), st.integers(1, 5))
def test_a_run_is_assembled_from_its_chunks(
    tmp_path_factory: pytest.TempPathFactory, observations: Observations, size: int
) -> None:
    floats = {name: to_log_precision(column) for name, column in observations.columns.items()}
    floats["r_metric"] = to_log_precision(np.linspace(0.0, 1.0, len(observations)))
    lines = encode_metrics(observations.step, floats, {"alerts": [{"a": n} for n in range(len(observations))]})
    path = _write(tmp_path_factory.mktemp("assembled"), START, lines, END)
    whole, run = read_log(path), assemble("run", chunks(read_events(path, _undamaged), _undamaged, size=size))
    assert bits(run.verdicts.get("r_metric", [])) == bits(floats["r_metric"])
    assert run.observations.evaluated.tolist() == whole.observations.evaluated.tolist()  # type: ignore[union-attr]
    for name in MEASUREMENTS:
        assert bits(run.observations[name]) == bits(whole.observations[name]), name
    assert (run.config, run.events, run.alerts) == (whole.config, whole.events, whole.alerts)


def test_a_run_that_was_appended_to_the_log_of_another_does_not_take_its_place(tmp_path: Path) -> None:
    second = b'{"event": "EXPERIMENT_START", "config": {"fault_injection": {"type": "NONE"}}}\n'
    run = read_log(_write(tmp_path, START, b'{"event": "METRICS", "step": 10}\n', END, second))
    assert run.fault == "LR_SPIKE"
