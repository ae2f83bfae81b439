"""What all tests share: a reproducible hypothesis profile, where the sample data lies, registries that stay clean."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from rmetric.engines.local import ONE_THREAD, start_ahead

# Before torch and NumPy are imported, here and in what tests start: tiny models are fastest on one core, by ten times
# where other tests run on the others.
os.environ |= {**dict.fromkeys(ONE_THREAD, "1"), "KERAS_BACKEND": "torch", **os.environ}

import pytest
from hypothesis import HealthCheck, settings

from rmetric.detectors import DETECTORS
from rmetric.faults import FAULTS

# No test may depend on luck or on the speed of the machine.
thorough = settings(derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", thorough)  # of make test-all: --hypothesis-profile thorough
settings.register_profile("rmetric", thorough, max_examples=25)
settings.register_profile("fast", thorough, max_examples=10)  # of make test-fast
settings.load_profile("rmetric")


def pytest_collection(session: pytest.Session) -> None:
    """Let every second worker import from the other end: what one has compiled, in a new clone, the others find."""
    worker = getattr(session.config, "workerinput", {}).get("workerid", "gw0")
    if int(worker.removeprefix("gw")) % 2 and session.config.args_source == session.config.ArgsSource.TESTPATHS:
        for path in sorted(HERE.rglob("test_*.py"), reverse=True):
            with suppress(Exception, pytest.skip.Exception):  # of which the collection tells
                import_module(".".join(path.relative_to(HERE.parent).with_suffix("").parts))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what is imported by now, a million objects, out of all garbage collections to come: 0.6 s each."""
    gc.collect()
    gc.freeze()
    works = hasattr(session.config, "workerinput")  # for pytest-xdist, as the pytest that a test runs does not
    if works and find_spec("torch") and find_spec("transformers"):
        start_ahead("tests.preloaded")  # a run of many tests comes to need it


HERE = Path(__file__).resolve().parent
AUTHORS_LOGS = HERE.parents[1] / "shared" / "data" / "authors_sample_logs"
"""Not part of this repository: the files belong to the paper's author."""


@pytest.fixture(scope="session")
def authors_logs() -> list[Path]:
    """The run logs that the paper's author wrote."""
    found = sorted(AUTHORS_LOGS.glob("*.jsonl"))
    if not found:
        pytest.skip("the author's sample logs are not part of this repository and are not beside it")
    return found


@pytest.fixture(scope="session")
def real_logs() -> list[Path]:
    """Real training runs in the project's format."""
    return sorted((HERE / "data" / "real_runs").glob("*.jsonl"))


@pytest.fixture
def clean_registries() -> Iterator[None]:
    """Forget whatever a test registers."""
    known = {id(registry): {name for name, _ in registry.items()} for registry in (FAULTS, DETECTORS)}
    yield
    for registry in (FAULTS, DETECTORS):
        for name in {name for name, _ in registry.items()} - known[id(registry)]:
            registry.discard(name)


@pytest.fixture(scope="module")
def made_up_parameters() -> Iterator[None]:
    """Let the simulator use the fixed parameters of the tests, and not those that were fitted last."""
    from tests.simulation.made_up import MADE_UP

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rmetric.simulation.SimulationParameters.shipped", lambda: MADE_UP)
        yield


@pytest.fixture
def ticking() -> Callable[[], Callable[[], float]]:
    """Makes clocks that advance by 20 ms a look."""

    def make() -> Callable[[], float]:
        looks = itertools.count()
        return lambda: next(looks) * 0.02

    return make
