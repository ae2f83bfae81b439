"""Rules that label strangers' runs, and the reader of such runs."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rmetric.errors import UserError
from rmetric.evaluation.protocols import ABSORBED, HEALTHY, IGNORED, WARNING
from rmetric.records import Observations, Run
from studies.abroad.labels import AFTERMATH, AHEAD, EXCEPTIONS, TOLERANCE, excursions, label_of
from studies.abroad.strangers import read_strangers


def learning(records: int = 300) -> np.ndarray:
    """A loss that falls from 10 to 3, with noise of 0.05."""
    noise = 0.05 * np.random.default_rng(0).standard_normal(records)
    return 3.0 + 7.0 * np.exp(-np.arange(records) / 30.0) + noise


def run_of(loss: np.ndarray, name: str = "run") -> Run:
    return Run(name, {}, Observations(np.arange(len(loss)), {"training_loss": loss}))


def test_learning_is_healthy_and_so_is_a_single_spike() -> None:
    loss = learning()
    loss[200] += 5.0
    assert excursions(loss) == ()


def test_two_levels_are_healthy() -> None:
    rng = np.random.default_rng(1)
    assert excursions(learning() + 2.0 * rng.integers(2, size=300)) == ()


def test_what_comes_back_is_an_instability() -> None:
    loss = learning()
    loss[200:205] += 3.0
    (found,) = excursions(loss)
    assert (found.verdict, found.begin, found.end) == ("instability", 200, 204)
    zone = label_of(run_of(loss)).zones(300)
    assert (zone[: found.rise - TOLERANCE] == HEALTHY).all()
    assert (zone[found.rise - TOLERANCE : 204 + AFTERMATH + 1] == ABSORBED).all()
    assert (zone[204 + AFTERMATH + 1 :] == HEALTHY).all()


def test_what_never_comes_back_is_a_failure() -> None:
    loss = learning()
    loss[200:] += 3.0
    label = label_of(run_of(loss))
    assert label.failure == 200
    zone = label.zones(300)
    assert (zone[200 - AHEAD : 200] == WARNING).all() and (zone[200:] == IGNORED).all()


def test_a_loss_that_is_not_finite_to_the_end_is_a_failure() -> None:
    loss = learning()
    loss[298:] = np.inf
    assert label_of(run_of(loss)).failure == 298


def test_a_second_instability_is_judged_by_the_noise_of_calm_records() -> None:
    loss = learning()
    loss[150:160] += 8.0
    loss[200:205] += 1.5
    assert [item.begin for item in excursions(loss)] == [150, 200]


def test_every_exception_has_a_reason() -> None:
    table = pd.read_csv(EXCEPTIONS)
    assert all(len(str(reason)) > 20 for reason in table["reason"]) and table["run"].is_unique


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two runs of one name, as two leaderboards have them."""
    index = {
        "source": "algoperf", "run": "adam/trial_1", "records": 3, "task": "wmt", "optimizer": ["adam", None],
        "origin": ["board_5/logs/adam/trial_1", "board_6/logs/adam/trial_1"], "licence": "Apache-2.0",
    }  # fmt: skip
    pd.DataFrame(index).to_csv(tmp_path / "runs.csv", index=False)
    held = [np.nan, 2.0, 2.0, np.nan, 3.0, 2.5]
    records = {
        "run": "adam/trial_1", "step": [0, 100, 200] * 2, "training_loss": [3.0, 2.0, np.inf, 3.0, 2.0, 1.0],
        "validation_loss": held,
    }  # fmt: skip
    pd.DataFrame(records).to_parquet(tmp_path / "algoperf.parquet")
    return tmp_path


def test_runs_of_one_name_are_told_apart(folder: Path) -> None:
    first, second = read_strangers(folder, ["algoperf"])
    assert (first.name, second.name) == ("board_5/adam/trial_1", "board_6/adam/trial_1")
    assert first.config["optimizer"] == "adam" and "optimizer" not in second.config
    assert first.observations.evaluated.tolist() == [False, True, False]
    assert second.observations.evaluated.tolist() == [False, True, True]
    assert np.isinf(first.observations["training_loss"][2])


def test_a_list_that_does_not_fit_the_records_is_refused(folder: Path) -> None:
    index = pd.read_csv(folder / "runs.csv")
    index.assign(records=4).to_csv(folder / "runs.csv", index=False)
    with pytest.raises(UserError, match="does not hold the runs"):
        read_strangers(folder, ["algoperf"])


@pytest.mark.parametrize(
    ("file", "column"), [("runs.csv", "source"), ("runs.csv", "licence"), ("algoperf.parquet", "step")]
)
def test_a_column_that_is_missing_is_told_in_one_line(file: str, column: str, tmp_path: Path) -> None:
    listed = {name: ["x"] for name in ("source", "run", "records", "task", "optimizer", "origin", "licence")}
    tables = {"runs.csv": pd.DataFrame(listed), "algoperf.parquet": pd.DataFrame({"run": ["x"], "step": [1]})}
    tables[file] = tables[file].drop(columns=column)
    tables["runs.csv"].to_csv(tmp_path / "runs.csv", index=False)
    tables["algoperf.parquet"].to_parquet(tmp_path / "algoperf.parquet")
    with pytest.raises(UserError, match=f"{file} has no column '{column}'"):
        read_strangers(tmp_path, ["algoperf"])
