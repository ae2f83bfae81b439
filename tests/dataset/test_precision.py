"""Single precision gives back the seven digits of a log, and says where it does not."""

from __future__ import annotations

import numpy as np
import pytest

from rmetric.dataset.precision import narrowed, widened
from rmetric.log_writer import to_log_precision
from tests.helpers import bits


def test_values_of_every_size_come_back_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    values = to_log_precision(rng.choice([-1.0, 1.0], 200_000) * 10.0 ** rng.uniform(-12, 12, 200_000))
    values[:4] = [np.nan, np.inf, 0.0, 3.0]
    single, exceptions = narrowed(values)
    assert single.dtype == np.float32
    assert 0 < len(exceptions) < 200
    assert bits(widened(single, exceptions)) == bits(values)
    assert bits(widened(single, {})) != bits(values)


@pytest.mark.parametrize("value", [3.14159265358979, 1e39, 1e-50, -0.0])
def test_a_column_that_single_precision_cannot_tell_stays_as_it_is(value: float) -> None:
    values = np.full(50, value)
    kept, exceptions = narrowed(values)
    assert (kept.dtype, exceptions) == (np.float64, {})
    assert bits(widened(kept, exceptions)) == bits(values)


def test_a_single_value_beyond_single_precision_is_an_exception() -> None:
    values = np.full(5000, 2.5)
    values[7] = 1e39
    single, exceptions = narrowed(values)
    assert exceptions == {7: 1e39}
    assert bits(widened(single, exceptions)) == bits(values)
