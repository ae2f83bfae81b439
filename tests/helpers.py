"""Plain functions that several test modules use."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from rmetric.detectors import DETECTORS, Detector, StreamingDetector
from rmetric.measurements import MECHANISM, Observation
from rmetric.records import Observations
from rmetric.state import restore, state_of

ROOT = Path(__file__).resolve().parent.parent
"""Folder of the repository."""
EXTREMES = (
    math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 2.0, 2.5, -1.0, 5e-324, -5e-324, 2e-310, 2.2250738585072014e-308,
    1e-12, 1e38, 1e39, 1e150, 1e200, 1e300, -1e300, 1.7976931348623157e308, -1.7976931348623157e308,
)  # fmt: skip

ends_of_a_command = pytest.mark.parametrize(
    ("sent", "ended"), [(signal.SIGINT, (130, "interrupted\n")), (signal.SIGTERM, (143, "terminated\n"))]
)
"""A signal, and the exit status and the one line with which it ends any command."""

any_float = st.one_of(st.sampled_from(EXTREMES), st.floats(), st.floats(0.0, 10.0))


@contextmanager
def hearing_ctrl_c() -> Iterator[None]:
    """What is started within hears Ctrl-C, even if this process was started in the background and ignores it.

    Not by ``preexec_fn``: Python that runs between fork and exec waits for ever where another thread held a lock.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def ended_by(sent: signal.Signals, command: Sequence[str], is_under_way: Callable[[], object]) -> tuple[int, str]:
    """Exit status and standard error of a Python script that is sent a signal once it is under way."""
    with hearing_ctrl_c():
        process = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
    while not is_under_way():
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.01)
    process.send_signal(sent)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


def printed_by(code: str) -> str:
    """Standard output of a program in an interpreter of its own; it has to end well."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def bits(values: ArrayLike) -> list[int | str]:
    """The bits of each number; any NaN is like any other."""
    array = np.ascontiguousarray(values, dtype=np.float64)
    return [
        "nan" if math.isnan(value) else bit
        for value, bit in zip(array.tolist(), array.view(np.uint64).tolist(), strict=True)
    ]


def resumed_and_straight(
    make: Callable[[], StreamingDetector], records: Sequence[Observation], seen: int
) -> tuple[StreamingDetector, StreamingDetector]:
    """A detector that was restored after some of the records, and one that was not: their scores have the same bits."""
    straight, resumed = make(), make()
    for record in records[:seen]:
        straight.update(record)
    restore(resumed, state_of(straight))
    expected = [straight.update(record) for record in records[seen:]]
    assert bits([resumed.update(record) for record in records[seen:]]) == bits(expected)
    return resumed, straight


def any_numbers(rng: np.random.Generator, length: int) -> NDArray[np.float64]:
    """One number over and over, or ordinary ones, and strewn over them extremes and floats of any bits."""
    numbers = rng.uniform(0.0, 10.0, length) if rng.random() < 0.5 else np.full(length, rng.choice(EXTREMES))
    odd = rng.random(length) < rng.choice((0.0, 0.1, 0.5, 1.0))
    of_any_bits = rng.integers(0, 2**64, length, dtype=np.uint64).view(np.float64)
    numbers[odd] = np.where(rng.random(length) < 0.5, rng.choice(EXTREMES, length), of_any_bits)[odd]
    return numbers


@st.composite
def any_observations(draw: st.DrawFn, names: Sequence[str], max_size: int = 40) -> Observations:
    """A run of arbitrary numbers; a column may be missing altogether, and the evaluations may be given or derived.

    Hypothesis draws, and shrinks, the length and a seed; to draw each number took longer than most that is tested.
    """
    length = draw(st.integers(0, max_size))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    missing = rng.choice([*names, None])  # no column at times
    columns = {name: any_numbers(rng, length) for name in rng.permutation(names).tolist() if name != missing}
    evaluated = rng.random(length) < 0.5 if rng.random() < 0.5 else None
    return Observations(np.cumsum(rng.integers(1, 4, length)), columns, evaluated)


def small_detector(name: str) -> Detector:
    """A registered detector whose windows and warm-ups are short enough for runs of some ten records."""
    short = {
        "window": 4, "warm_up": 3, "memory": 5, "trees": 4, "skipped_steps": 2, "reference_steps": 8, "min_records": 3,
        "skipped_records": 2, "reference_records": 8, "epochs": 2,
    }  # fmt: skip
    detector = DETECTORS[name]()  # type: ignore[call-arg]
    known = {item.name for item in fields(detector) if item.init}
    return replace(detector, **{key: value for key, value in short.items() if key in known})


def strict_json(line: bytes | str) -> dict[str, Any]:
    """One line as any strict JSON parser has it; raises ValueError for the NaN and Infinity that Python lets pass."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    return json.loads(line, parse_constant=refuse)


def lines_of(content: bytes) -> list[dict[str, Any]]:
    """All events of a log, strictly parsed."""
    return [strict_json(line) for line in content.splitlines()]


def records_of(content: bytes) -> list[dict[str, Any]]:
    """The METRICS records of a log, strictly parsed."""
    return [event for event in lines_of(content) if event["event"] == "METRICS"]


def healthy_observations(length: int = 400, seed: int = 0) -> Observations:
    """A run in which nothing happens: every measurement there, on a record every 10 steps."""
    rng = np.random.default_rng(seed)
    step = 10 * np.arange(1, length + 1)
    loss = 2.0 + 2.0 * np.exp(-step / 1500.0)
    validation = np.repeat(loss[9::10], 10)[: length - 9]
    columns: dict[str, NDArray[np.float64]] = {
        "training_loss": loss * (1.0 + 0.003 * rng.standard_normal(length)),
        "validation_loss": np.concatenate([np.full(9, np.nan), validation]),
        "learning_rate": np.full(length, 1e-4),
        "grad_norm": 1.0 + 0.1 * rng.random(length),
        "update_rms": np.full(length, 1e-5),
        "step_time_s": np.full(length, 5.0),
        "step_time_max_s": np.full(length, 5.2),
        "lambda": 1.0 + 0.1 * rng.random(length),
        "sigma_sq": 0.05 * np.exp(0.2 * rng.standard_normal(length)),
        "delta_l": -0.2 + 0.01 * rng.standard_normal(length),
        "non_finite_count": np.zeros(length),
        "settings_changed": np.zeros(length),
        "uniform_gap": np.full(length, -3.0),
        "hardware_events": np.zeros(length),
        "event_worker": np.full(length, np.nan),
        **{name: 0.5 + 0.005 * rng.random(length) for name in MECHANISM},
        "grad_agreement": 0.1 + 0.05 * rng.random(length),
    }
    return Observations(step, columns)
