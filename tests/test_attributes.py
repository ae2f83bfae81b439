"""Attributes that are replaced for a while."""

from types import SimpleNamespace
from typing import Any

import pytest

from rmetric.attributes import replaced


@pytest.mark.parametrize("own", [{}, {"hook": None}, {"hook": 1}])
def test_what_was_there_is_there_again(own: dict[str, Any]) -> None:
    """A value of ``None`` too: an object without it is another one than with it."""
    target = SimpleNamespace(**own)
    with replaced(target, "hook", 2):
        assert target.hook == 2
    assert vars(target) == own


def test_what_somebody_else_has_put_over_it_is_left_alone() -> None:
    target = SimpleNamespace(hook=1)
    with replaced(target, "hook", 2):
        target.hook = 3
    assert target.hook == 3
