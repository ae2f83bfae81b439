"""A small simulated study, a model of its fit half, and how that does on its score half."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmetric.detectors import make_detector
from rmetric.evaluation.studies import Study, load_study
from rmetric.risk.model import RiskModel
from studies.paper.plan import StudyPlan
from studies.paper.run import simulate_study
from studies.risk import fit as fitting
from studies.risk.quality import Judged
from studies.risk.recipes import LinearRecipe, TreesRecipe

FAULTS = ("GRADIENT_EXPLOSION", "DATA_CORRUPTION", "NETWORK_DEGRADATION", "LR_SPIKE")


@pytest.fixture(scope="session", autouse=True)
def few_recipes() -> Iterator[None]:
    """One of each kind, and small: the choice between many is scikit-learn's time, not this package's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "HAZARD_RECIPES", (TreesRecipe(4, 4, bins=8),))
        patch.setattr(fitting, "ALERT_RECIPES", (LinearRecipe(0.03), TreesRecipe(4, 4, bins=8)))
        patch.setattr(fitting, "FAMILY_RECIPES", (LinearRecipe(0.03),))
        yield


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("risk_logs")
    plan = StudyPlan(
        steps=1500, repetitions=6, severities=("high",), faults=FAULTS, architectures=("llama-3-8b",), controls=6
    )
    simulate_study(plan, folder)
    return folder


@pytest.fixture(scope="session")
def study(logs: Path) -> Study:
    return load_study(logs, 1)


@pytest.fixture(scope="session")
def model(study: Study) -> RiskModel:
    return fitting.fit(study, make_detector("robust_z"))


@pytest.fixture(scope="session")
def judged(study: Study, model: RiskModel) -> Judged:
    return Judged.of(study, model, make_detector("robust_z"), jobs=1, draws=60)
