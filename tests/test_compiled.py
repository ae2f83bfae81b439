"""When compiled code pays, and that it gives what interpreted code gives."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from rmetric import compiled as module
from rmetric.compiled import FEW, PAYS_FROM, compiled, interruptible, pays
from rmetric.detectors.paper_baselines import fading_z
from tests.helpers import bits


@pytest.fixture
def nobody_has_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    monkeypatch.setattr(module, "_judged_without", 0)


@pytest.mark.usefixtures("nobody_has_paid")
def test_short_logs_pay_together() -> None:
    assert not pays(PAYS_FROM - FEW)
    assert not pays(0)
    assert pays(FEW)
    assert pays(0)


@pytest.mark.usefixtures("nobody_has_paid")
def test_what_is_imported_already_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", module)
    assert pays(FEW)


@pytest.mark.usefixtures("nobody_has_paid")
def test_a_few_at_a_time_are_judged_one_by_one_however_many_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(pays(1) for _ in range(PAYS_FROM + 1))
    monkeypatch.setitem(sys.modules, "numba", module)
    assert not pays(1)


def test_ctrl_c_in_compiled_code_is_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        try:
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt as interrupt:
                raise SystemError("returned a result with an exception set") from interrupt
        except SystemError:
            raise SystemError("returned a result with an exception set")  # noqa: B904 - as Numba does


def test_any_other_system_error_stays_one() -> None:
    with pytest.raises(SystemError, match="of its own"), interruptible():
        raise SystemError("of its own")


def test_one_source_gives_the_same_bits_interpreted_and_compiled() -> None:
    losses = np.concatenate([np.random.default_rng(0).normal(2.0, 0.1, 200), [np.nan, 9.0, np.inf, 1e300, -1e300, 2.0]])
    settings = (0.0, 0.0, 0, 3.0, 50, 10)
    scores, *state = fading_z(losses.tolist(), *settings)
    compiled_scores, *compiled_state = compiled(fading_z)(losses, *settings)
    assert bits(scores) == bits(compiled_scores)
    assert state == compiled_state
