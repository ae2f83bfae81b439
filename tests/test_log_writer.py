from __future__ import annotations

import math
from decimal import Decimal

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis.extra import numpy as hnp

from rmetric.log_writer import encode_event, encode_metrics, to_log_precision
from tests.helpers import any_float, bits, strict_json

NAN, INF = math.nan, math.inf

magnitudes = st.builds(
    lambda mantissa, exponent, sign: sign * float(f"{mantissa!r}e{exponent}"),
    st.floats(1.0, 9.9999999999),
    st.integers(-300, 300),
    st.sampled_from([1, -1]),
)


@given(magnitudes)
@example(9.9999995)
@example(9.99999949999)
@example(999999.95)
@example(1e-15)
@example(9.99999999e14)
@example(1e15)
@example(0.0001)
def test_a_logged_number_is_the_nearest_decimal_of_7_digits(value: float) -> None:
    logged = float(to_log_precision(value))
    exact = Decimal(value)
    unit = Decimal(10) ** (exact.adjusted() - 6)
    assert abs(Decimal(repr(logged)) - exact) <= unit / 2 * (1 + Decimal("1e-8"))
    # It prints with 7 digits, and is the double nearest to that print.
    digits = Decimal(repr(logged)).normalize().as_tuple().digits
    assert len(digits) <= 7
    assert logged == float(f"{logged:.7g}")


@given(st.integers(1_000_000, 9_999_999), st.integers(-300, 300))
def test_decimals_of_7_digits_are_logged_as_they_are(mantissa: int, exponent: int) -> None:
    value = float(f"{mantissa}e{exponent}")
    assert float(to_log_precision(value)) == value


@given(hnp.arrays(np.float64, st.integers(0, 30), elements=any_float))
def test_rounding_twice_is_rounding_once(values: np.ndarray) -> None:
    once = to_log_precision(values)
    assert bits(to_log_precision(once)) == bits(once)


@given(hnp.arrays(np.float64, st.integers(0, 30), elements=any_float))
def test_what_is_not_finite_passes_through_and_nothing_becomes_so(values: np.ndarray) -> None:
    logged = to_log_precision(values)
    ordinary = np.abs(values) < 1.797693e308
    assert np.isfinite(logged[ordinary]).all()
    assert bits(logged[~np.isfinite(values)]) == bits(values[~np.isfinite(values)])
    assert not (np.signbit(logged) & (logged == 0)).any()


def test_a_signalling_nan_is_a_nan_without_a_warning() -> None:
    assert bits(to_log_precision(np.array([0x7FF0000000000001], dtype=np.uint64).view(np.float64))) == ["nan"]


@given(hnp.arrays(np.float64, st.integers(1, 30), elements=any_float))
def test_a_number_is_rounded_alike_whatever_stands_beside_it(values: np.ndarray) -> None:
    assert bits(to_log_precision(values)) == bits([float(to_log_precision(value)) for value in values.tolist()])


def test_events_and_metrics_round_alike() -> None:
    values = np.random.default_rng(0).standard_normal(2000) * 10.0 ** np.random.default_rng(1).integers(-14, 14, 2000)
    written = [strict_json(encode_event({"value": value}))["value"] for value in values.tolist()]
    assert written == to_log_precision(values).tolist()


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), any_float, st.text(st.characters(codec="utf-8"))
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
)


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda key: key != "non_finite"), values, max_size=5
    )
)
def test_any_event_is_one_line_of_strict_json(event: dict[str, object]) -> None:
    line = encode_event(event)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    written = strict_json(line)
    lost = [key for key, value in event.items() if isinstance(value, float) and not math.isfinite(value)]
    assert written.pop("non_finite", []) == lost
    assert list(written) == [key for key in event if key not in lost]


def test_an_event_keeps_its_types() -> None:
    event = {"a": True, "b": None, "c": 3, "d": "x", "e": {"f": [1, 2.5, False, None, {"g": ()}]}, "h": -0.125}
    assert strict_json(encode_event(event)) == {**event, "e": {"f": [1, 2.5, False, None, {"g": []}]}}


def test_numpy_values_are_written_as_their_plain_counterparts() -> None:
    event = {
        "int": np.int64(7), "bool": np.bool_(True), "single": np.float32(0.1), "double": np.float64(2.5),
        "array": np.array([[1, 2], [3, 4]]), "lost": np.float32("nan"), "gone": np.float64("inf"),
    }  # fmt: skip
    assert strict_json(encode_event(event)) == {
        "int": 7, "bool": True, "single": 0.1, "double": 2.5, "array": [[1, 2], [3, 4]], "non_finite": ["lost", "gone"],
    }  # fmt: skip


def test_a_nested_non_finite_number_becomes_its_name() -> None:
    assert strict_json(encode_event({"params": {"limit": INF, "low": [NAN, -INF]}})) == {
        "params": {"limit": "inf", "low": ["nan", "-inf"]}
    }


@pytest.mark.parametrize("value", [{1, 2}, object(), 1j])
def test_what_json_cannot_hold_is_refused_by_name(value: object) -> None:
    with pytest.raises(TypeError, match=f"a log cannot hold a {type(value).__name__}"):
        encode_event({"event": "X", "value": value})


def test_a_record_leaves_out_what_was_not_measured_and_names_what_was_not_finite() -> None:
    floats = {"training_loss": np.array([1.5, INF, 2.0]), "grad_norm": np.array([NAN, INF, 3.0])}
    lines = encode_metrics(np.array([10, 20, 30]), floats, {"is_nan": [False, True, False]})
    written = [strict_json(line) for line in lines.splitlines()]
    assert written == [
        {"event": "METRICS", "step": 10, "training_loss": 1.5, "is_nan": False},
        {"event": "METRICS", "step": 20, "is_nan": True, "non_finite": ["training_loss", "grad_norm"]},
        {"event": "METRICS", "step": 30, "training_loss": 2.0, "grad_norm": 3.0, "is_nan": False},
    ]
