"""Lines that differ in their numbers alone: compiled code reads what a JSON parser reads, or declines."""

from __future__ import annotations

import json

import hypothesis.strategies as st
import numpy as np
import orjson
import pytest
from hypothesis import example, given

from rmetric.batches import COLUMNS, RecordBatch
from rmetric.line_pattern import LinePattern
from tests.helpers import any_float, bits

LINE = b'{"event":"METRICS","step":%d,"training_loss":%b,"note":"a \\"step\\":5","alerts":{"grad_norm":7}}\n'
PATTERN = LinePattern.of(LINE % (1, b"2.5"))


def _whole(lines: bytes) -> RecordBatch | None:
    """The batch of some lines if all of them follow the pattern."""
    assert PATTERN is not None
    batch, end = PATTERN.batch(lines)
    return batch if end == len(lines) else None


DIGITS = st.text("0123456789", min_size=0, max_size=20)
SIGNS, POWERS = st.sampled_from(["", "-", "+"]), st.sampled_from(["", "e", "E", "e-", "E+"])
NUMBERS = st.one_of(
    any_float.map(repr),
    st.floats(width=32).map("{:.7g}".format),
    st.integers().map(str),
    st.tuples(SIGNS, DIGITS, st.sampled_from(["", "."]), DIGITS, POWERS, DIGITS).map("".join),
    st.tuples(SIGNS, st.sampled_from("0123456789"), st.just("."), DIGITS, POWERS, st.integers(0, 40).map(str)).map(
        "".join
    ),
)


@given(NUMBERS)
@example("-0").via("the integer is 0")
@example("-0.0").via("the double has its sign")
@example("9007199254740993").via("halfway between two doubles")
@example("1.7976931348623157e308").via("not exact")
def test_a_number_that_is_read_is_the_nearest_double(text: str) -> None:
    line = LINE % (1, text.encode())
    batch = _whole(line)
    if batch is not None:
        assert bits(batch.numbers[:, 0]) == bits([orjson.loads(line)["training_loss"]])


@pytest.mark.parametrize(
    "text", ["0", "1", "2.5", "-0.0", "0.0001234568", "9.671048e-6", "1e22", "123456800.0", "3E+2"]
)
def test_numbers_as_logs_have_them_are_read(text: str) -> None:
    batch = _whole(LINE % (1, b"2.5") + LINE % (20, text.encode()))
    assert batch is not None
    assert batch.step.tolist() == [1, 20]
    assert bits(batch.numbers[:, COLUMNS.index("training_loss")]) == bits([2.5, float(text)])
    assert np.isnan(batch.numbers[:, 1:]).all()
    assert [row["training_loss"] for row in batch.rows()] == [2.5, float(text)]
    assert batch.alerts == [{"grad_norm": 7}] * 2


@pytest.mark.parametrize(
    "lines",
    [
        LINE % (2, b"2.5") + LINE % (2, b"2.5"),
        LINE % (2, b"2.5") + LINE % (1, b"2.5"),
        (LINE % (2, b"2.5")).removesuffix(b"\n"),
        (LINE % (2, b"2.5")).replace(b"\n", b"\r\n"),
        (LINE % (2, b"2.5")).replace(b'"step":2', b'"step":2.0'),
        (LINE % (2, b"2.5")).replace(b'"step":2', b'"step":-2'),
        (LINE % (2, b"2.5")).replace(b'"step":2', b'"step":9007199254740992'),
        (LINE % (2, b"2.5")).replace(b":7}", b":8}"),
        LINE % (2, b"2.5") + b"\n",
        b"\n" + LINE % (2, b"2.5"),
        *((LINE % (2, b"2.5"))[:cut] + b"\n" for cut in range(0, 90, 3)),
        *(LINE % (2, text) for text in (b"", b"-", b"2.", b".5", b"02", b"1e", b"1e+", b"NaN", b"null", b'"2.5"')),
    ],
)  # fmt: skip
def test_other_lines_are_declined(lines: bytes) -> None:
    assert _whole(lines) is None


@pytest.mark.parametrize(
    "line",
    [
        b'{"event":"VALIDATION","step":1}\n',
        b'{"event":"METRICS","step":1,"non_finite":["grad_norm"]}\n',
        b'{"event":"METRICS","step":1,"training_loss":"2.5"}\n',
        b'{"event":"METRICS","step":1,"step":1}\n',
        b'{"event":"METRICS","step" :1}\n',
        b'{"event":"METRICS","step":1,"note":"\\u0000a number\\u0000"}\n',
        b'{"event":"METRICS","step":1,"x":' + b"[" * 500 + b"]" * 500 + b"}\n",
    ],
)
def test_some_lines_make_no_pattern(line: bytes) -> None:
    assert LinePattern.of(line) is None


def test_the_spaces_of_pythons_own_writer_are_known() -> None:
    lines = [json.dumps({"event": "METRICS", "step": step, "grad_norm": 1e-07 * step}) + "\n" for step in range(1, 4)]
    pattern = LinePattern.of(lines[0].encode())
    assert pattern is not None
    batch, _ = pattern.batch("".join(lines).encode())
    assert batch is not None
    assert batch.step.tolist() == [1, 2, 3]


def test_the_pattern_ends_at_another_line_and_goes_on_behind_it() -> None:
    assert PATTERN is not None
    first, between = LINE % (1, b"2.5") + LINE % (2, b"2.5"), b'{"event":"VALIDATION"}\n'
    lines = first + between + LINE % (3, b"2.5") + (LINE % (4, b"2.5"))[:-1]
    batch, end = PATTERN.batch(lines)
    assert batch is not None
    assert (batch.step.tolist(), end) == ([1, 2], len(first))
    assert PATTERN.batch(lines, end) == (None, end)
    batch, end = PATTERN.batch(lines, end + len(between))
    assert batch is not None
    assert (batch.step.tolist(), end) == ([3], len(lines) - len(LINE % (4, b"2.5")) + 1)
    assert [row["step"] for row in batch.rows()] == [3]
