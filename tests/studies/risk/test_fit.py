"""Fitting: the same bytes twice, the score half unseen, too little to learn from told in one line."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rmetric.detectors import make_detector
from rmetric.errors import UserError
from rmetric.evaluation.split import digest, halves
from rmetric.evaluation.studies import Study
from rmetric.records import Observations, Run
from rmetric.risk.model import RiskModel
from rmetric.risk.model_file import to_json
from studies.risk import fit as fitting
from studies.risk.fit import HORIZONS, base_rates, fit_half, main, naming_bar
from studies.risk.records import alert_records, all_records, feature_tables
from tests.evaluation.builders import build_run
from tests.helpers import healthy_observations


def failing_soon(seed: int) -> Run:
    """A run of 240 steps whose loss is not finite from step 170 on."""
    loss = np.array([3.0] * 169 + [math.inf] * 71)
    config = {"seed": seed, "backend": "torch", "model_type": "tiny", "total_training_steps": 240}
    return build_run(range(1, 241), onset=160, failure=180, columns={"training_loss": loss}, **config)


@pytest.mark.long
def test_the_score_half_is_not_looked_at(study: Study, model: RiskModel) -> None:
    seen = halves(study.runs).fit.tolist()
    spoilt = [
        run if fit else replace(run, observations=Observations(run.observations.step), events=run.events[-1:])
        for run, fit in zip(study.runs, seen, strict=True)
    ]
    again = fitting.fit(Study(study.folder, spoilt), make_detector("robust_z"))
    assert to_json(again.parameters) == to_json(model.parameters)


@pytest.mark.slow
def test_the_order_of_the_logs_and_the_processes_do_not_matter(study: Study, model: RiskModel) -> None:
    assert digest(study.runs) == digest(study.runs[::-1])
    made = model.parameters.provenance
    assert made["data_sha256"] == digest(fit_half(study).runs)
    assert made["runs"] == len(fit_half(study).runs)


def test_the_digest_knows_a_changed_number(study: Study) -> None:
    run = study.runs[0]
    loss = run.observations["training_loss"].copy()
    loss[3] = np.nextafter(loss[3], 9.0)
    changed = Observations(run.observations.step, {**run.observations.columns, "training_loss": loss})
    assert digest([run]) != digest([replace(run, observations=changed)])


@pytest.mark.slow
def test_the_model_knows_more_than_the_base_rate_on_its_own_half(study: Study, model: RiskModel) -> None:
    half = fit_half(study)
    tables = feature_tables(half, np.ones(len(half.runs), bool), 1)
    records = all_records(half, tables)
    for index, steps in enumerate(HORIZONS):
        known, hit = records.known_within(steps), records.fails_within(steps)
        error = (model.risk_of_features(records.features)[:, index] - hit)[known]
        assert (error**2).mean() < hit[known].var()
    rates = base_rates(records, alert_records(half, tables, {}))
    assert [rates[f"{steps}"] for steps in HORIZONS] == [model.parameters.base_rates[f"{steps}"] for steps in HORIZONS]
    assert rates["heals, 0 steps after the alert, all runs"] == 0.5  # no alert, nothing known


def test_the_rate_of_healing_is_of_the_runs_that_are_still_asked() -> None:
    runs = [build_run(range(1, 200), seed=1, onset=100, failure=103), build_run(range(1, 200), seed=3, onset=100)]
    study = Study(Path("made"), runs)
    tables = feature_tables(study, np.ones(2, bool), 1)
    rates = base_rates(all_records(study, tables), alert_records(study, tables, {0: [100], 1: [100]}))
    healing = [rates[f"heals, {after} steps after the alert, faulty runs"] for after in (0, 5, 20)]
    assert healing == [2 / 4, 2 / 3, 2 / 3]  # with one more of each kind


def test_the_bar_is_the_lowest_that_is_right_often_enough() -> None:
    probability = np.array([[0.9, 0.1]] * 9 + [[0.6, 0.4]] * 10)
    label = np.array([0] * 9 + [0, 1] * 5)
    assert naming_bar(probability, label) == 0.65
    assert naming_bar(probability[:9], label[:9]) == 0.0
    assert naming_bar(probability, 1 - label) == 0.95


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], "0 failed runs"),
        ([build_run(range(1, 100), seed=2, onset=40, failure=60)], "0 failed runs"),
        ([build_run(range(1, 100), seed=1, onset=40, failure=60)], "1 failed runs"),
        ([build_run(range(1, 100), seed=seed, onset=40, failure=60) for seed in (1, 3)], "fewer than two seeds"),
        ([failing_soon(seed) for seed in (1, 3)], "next 200 steps are known"),
    ],
)
def test_too_little_is_told_in_one_line(runs: list, message: str) -> None:
    with pytest.raises(UserError, match=message):
        fitting.fit(Study(Path("made"), runs), make_detector("robust_z"))


@pytest.mark.long
def test_the_command_writes_the_same_bytes_as_the_call(
    logs: Path, model: RiskModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fitting, "default_detector", lambda: make_detector("robust_z"))
    out = tmp_path / "model.json"
    assert main(["--from", str(logs), "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8") == to_json(model.parameters)
    assert "runs of the fit half" in capsys.readouterr().out


def test_no_logs_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--from", str(tmp_path), "--out", str(tmp_path / "model.json")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.slow
def test_there_and_back_gives_the_same_file(model: RiskModel, tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    model.save(first)
    RiskModel.load(first).save(second)
    assert first.read_bytes() == second.read_bytes()
    rows = healthy_observations(100)
    assert RiskModel.load(first).risk(rows) == pytest.approx(model.risk(rows), abs=1e-6)
