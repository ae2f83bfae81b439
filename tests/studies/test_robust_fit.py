"""Fitting: tails by hand, the fit half and nothing else, the same bytes twice."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rmetric.errors import UserError
from rmetric.evaluation.protocols import Timeline
from rmetric.evaluation.split import folds, halves
from rmetric.evaluation.studies import Study
from rmetric.records import Observations, Run
from rmetric.robust.metric import RobustRMetric, RobustSettings
from rmetric.signals import Weights
from studies.robust.fit import (
    cross_fitted,
    evidence,
    fit,
    fit_study,
    fit_tail,
    fit_tails,
    main,
    statistics_of,
    weigh,
    weight_grid,
)
from tests.helpers import bits
from tests.robust.runs import ONSET, disturbed, healthy


def run(number: int, observations: Observations, failure: int | None = None) -> Run:
    injection = {"type": "LR_SPIKE" if failure else "NONE", "severity": "high", "trigger_step": ONSET + 1}
    config = {"seed": number, "repetition": number, "log_every_n_steps": 1, "fault_injection": injection}
    end = {"event": "EXPERIMENT_SUCCESS", "step": 500, "outcome": "clean"}
    if failure:
        end = {"event": "EXPERIMENT_FAILURE", "step": failure, "reason": "DIVERGED"}
    events = [{"event": "FAULT_INJECTED", "step": ONSET + 1}, end] if failure else [end]
    return Run(f"run_{number}", {**config, "total_training_steps": 500}, observations, events)


def study() -> Study:
    runs = []
    for number in range(1, 5):
        spike = disturbed({"grad_norm": (slice(ONSET, None), 40.0 + number)}, seed=number)
        runs += [run(number, spike, failure=ONSET + 20), run(100 + number, healthy(seed=100 + number))]
    return Study(Path("study"), runs, checksums=[str(number) for number in range(len(runs))])


def test_a_tail_by_hand() -> None:
    # 1,000 steps in one control run: 0 all the time, but for ten single records far apart, of heights 1 to 10.
    values = np.zeros(1000)
    values[40::100] = np.arange(1.0, 11.0)
    control = run(1, Observations(np.arange(1, 1001), {"training_loss": values}))
    tail = fit_tail(Timeline.of([control]), values)
    # All ten are one a hundred steps; the largest was seen once in 1,000 steps: one decade rarer.
    assert tail.surprise(1.0) == pytest.approx(0.0, abs=1e-9)
    assert tail.bars[-1] == 10.0
    assert tail.surprises[-1] == pytest.approx(1.0)
    assert tail.surprise(7.0) == pytest.approx(-math.log10(4 / 1000 / 0.01), abs=0.1)


def test_what_is_always_there_is_not_rare() -> None:
    values = np.full(1000, 2.0)
    values[500] = 3.0
    tail = fit_tail(Timeline.of([run(1, Observations(np.arange(1, 1001), {"training_loss": values}))]), values)
    assert tail.surprise(2.0) == 0.0
    assert tail.surprise(3.0) == pytest.approx(1.0)


def test_what_never_moved_has_no_tail() -> None:
    timeline = Timeline.of([run(1, healthy())])
    assert fit_tail(timeline, np.zeros(500)).bars == ()
    assert fit_tail(timeline, np.full(500, np.nan)).bars == ()


def test_only_healthy_steps_make_a_tail() -> None:
    values = np.concatenate([np.zeros(ONSET), np.full(500 - ONSET, 50.0)])
    values[100] = 1.0
    failing = run(1, Observations(np.arange(1, 501), {"training_loss": values}), failure=400)
    assert fit_tail(Timeline.of([failing]), values).bars[-1] == 1.0


def test_the_fit_finds_the_fault_within_the_budget() -> None:
    made = study()
    chosen = halves(made.runs).fit
    timeline, _ = Timeline.of(made.runs).only(chosen)
    fitted = fit(timeline, statistics_of(made, chosen, jobs=1), np.arange(4))
    assert fitted.f1 == 1.0
    assert max(fitted.weights) == 1.0


def test_a_fold_is_judged_by_the_others() -> None:
    controls = [run(number, healthy(seed=number)) for number in (1, 3, 5)]
    timeline = Timeline.of(controls)
    statistics = statistics_of(Study(Path("controls"), controls, checksums=["1", "2", "3"]), np.ones(3, bool), jobs=1)
    found = cross_fitted(timeline, statistics, np.array([0, 1, 1]))
    others, rows = timeline.only(np.array([False, True, True]))
    one, _ = timeline.only(np.array([True, False, False]))
    assert np.array_equal(found[:, ~rows], evidence(fit_tails(others, statistics[rows]), one, statistics[~rows]))


def test_a_fold_that_is_louder_than_all_others_stands_out() -> None:
    loud = disturbed({"grad_norm": ([200, 350], 30.0)}, seed=1)  # type: ignore[dict-item]
    runs = [run(1, loud), *(run(number, healthy(seed=number)) for number in (3, 5, 7))]
    timeline = Timeline.of(runs)
    statistics = statistics_of(Study(Path("loud"), runs, checksums=list("1357")), np.ones(4, bool), jobs=1)
    crossed = cross_fitted(timeline, statistics, folds(runs, 4))
    assert crossed.max() > evidence(fit_tails(timeline, statistics), timeline, statistics).max() + 1.0


def test_r_of_the_fit_is_r_of_the_metric() -> None:
    made = study()
    content = fit_study(made, jobs=1)
    settings = RobustSettings.of(json.dumps(content))
    everything = np.ones(len(made.runs), bool)
    statistics = statistics_of(made, everything, jobs=1)
    ours = weigh(settings.weights, evidence(settings.tails, Timeline.of(made.runs), statistics))[:1000]
    theirs = [value.r for item in made.runs[:2] for value in RobustRMetric(settings).extend(item.observations)]
    assert ours == pytest.approx(theirs, rel=1e-12)


def test_the_score_half_is_never_looked_at() -> None:
    made = study()
    score = halves(made.runs).score
    spoiled = [
        replace(item, observations=healthy(seed=7), events=[]) if scored else item
        for item, scored in zip(made.runs, score.tolist(), strict=True)
    ]
    again = Study(made.folder, spoiled, checksums=made.checksums)
    assert fit_study(made, jobs=1) == fit_study(again, jobs=1)


def test_a_smaller_budget_gives_no_lower_threshold() -> None:
    made = study()
    chosen = halves(made.runs).fit
    timeline, _ = Timeline.of(made.runs).only(chosen)
    statistics = statistics_of(made, chosen, jobs=1)
    r = [fit(timeline, statistics, np.arange(4), budget).threshold for budget in (1e-2, 1e-4)]
    assert r[0] <= r[1]


def test_weights_are_relative() -> None:
    grid = weight_grid()
    assert len(set(grid)) == len(grid)
    assert {max(weights) for weights in grid} == {1.0}
    assert Weights(1.0, 1.0, 1.0) in grid


def test_without_a_failed_run_there_is_nothing_to_fit() -> None:
    quiet = Study(Path("quiet"), [run(1, healthy())], checksums=["1"])
    with pytest.raises(UserError, match="no run of the fit half failed"):
        fit_study(quiet, jobs=1)


def test_without_a_fit_half_either() -> None:
    even = Study(Path("even"), [run(2, healthy())], checksums=["1"])
    with pytest.raises(UserError, match="no run in the fit half"):
        fit_study(even, jobs=1)


def test_the_command_writes_the_same_bytes_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("studies.robust.fit.load_study", lambda folder, jobs: study())
    for name in ("one.json", "two.json"):
        main(["--from", "anywhere", "--out", str(tmp_path / name), "--jobs", "1"])
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    assert "4 runs (2 failed" in capsys.readouterr().out
    settings = RobustSettings.read(tmp_path / "one.json")
    assert bits(settings.weights) == bits(settings.weights)
    assert settings.budget_per_step == 1e-4


@pytest.mark.parametrize("text", ["", "{}", '{"version": 0}', "[]", '{"version": 2, "weights": 3}'])
def test_a_file_that_holds_no_settings_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text(text)
    with pytest.raises(UserError, match="fit them again"):
        RobustSettings.read(file)


def test_the_shipped_settings_say_where_they_come_from() -> None:
    text = (Path(__file__).parents[2] / "rmetric" / "robust" / "settings.json").read_text()
    origin = json.loads(text)["provenance"]
    assert origin["half"] == "fit"
    assert origin["healthy_steps"] > 10_000
    assert origin["failed"] > 0
    assert len(origin["data_sha256"]) == 64
    assert RobustSettings.of(text) == RobustSettings.shipped()
