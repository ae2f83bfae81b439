from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _fixed_simulator(made_up_parameters: None) -> None:
    """Effects are tested on parameters that no new fit changes."""
