"""``import rmetric`` costs nothing, and simulating needs none of the heavy libraries. Asked of fresh interpreters."""

from __future__ import annotations

import pytest

from tests.helpers import printed_by

HEAVY = ("torch", "transformers", "matplotlib", "seaborn", "sklearn", "pandas", "numba")


def _modules_after(code: str) -> set[str]:
    return set(printed_by(f"{code}\nimport sys\nprint(*sys.modules)").split())


def test_importing_the_package_imports_no_other_library() -> None:
    loaded = _modules_after("import rmetric")
    assert "rmetric" in loaded
    assert not loaded & {*HEAVY, "numpy", "scipy", "river", "orjson", "joblib"}


@pytest.mark.parametrize("module", ["records", "metric", "detectors", "faults", "simulation", "cli"])
def test_no_part_of_the_base_imports_a_heavy_library(module: str) -> None:
    assert not _modules_after(f"import rmetric.{module}") & set(HEAVY)


def test_simulating_and_logging_a_run_imports_no_heavy_library() -> None:
    code = (
        "from rmetric.simulation import run_batch\n"
        "from rmetric.simulation import RunSpec\n"
        "log, = run_batch([RunSpec(architecture='mistral-7b', steps=400)])\n"
        "assert log.records == 40"
    )
    assert not _modules_after(code) & set(HEAVY)


def test_every_public_name_resolves() -> None:
    import rmetric

    assert [name for name in rmetric.__all__ if getattr(rmetric, name, None) is None] == []
    assert set(dir(rmetric)) == set(rmetric.__all__)


ADAPTERS = "rmetric.monitor.adapters"


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("rmetric", "TrainingMonitor"), ("rmetric", "RecomputeStep"),
        (ADAPTERS, "RMetricCallback"), (ADAPTERS, "RMetricLightning"), (ADAPTERS, "monitored"),
    ],
)  # fmt: skip
def test_a_name_that_needs_torch_says_what_to_install(package: str, name: str) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"try:\n    from {package} import {name}\n"
        "except ModuleNotFoundError as error:\n    print(error, error.name)"
    )
    said = f"{package}.{name} needs torch, which is missing: pip install 'rmetric[live]' torch\n"
    assert printed_by(code) == said


def test_an_unknown_name_is_an_attribute_error() -> None:
    import rmetric

    with pytest.raises(AttributeError, match="attribute RMetrik"):
        _ = rmetric.RMetrik
