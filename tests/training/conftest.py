"""Small live runs, each test's own; one core, since tests run beside others."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'live'")
pytest.importorskip("transformers", reason="needs the extra 'live'")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def ticking() -> Callable[[], Callable[[], float]]:
    """Makes clocks that advance by 20 ms a look."""

    def make() -> Callable[[], float]:
        looks = itertools.count()
        return lambda: next(looks) * 0.02

    return make
