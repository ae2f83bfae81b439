"""Fitting: tails by hand, the fit half and nothing else, the same bytes twice."""

import json
import math
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from rmetric.errors import UserError
from rmetric.evaluation.protocols import Timeline
from rmetric.evaluation.split import halves
from rmetric.evaluation.studies import Study
from rmetric.records import Observations
from rmetric.robust.metric import STATISTICS, RobustRMetric, RobustSettings
from rmetric.robust.surprise import Tail
from studies.abroad.sources import may_be_fitted_to
from studies.robust.fit import (
    OF_THE_ZOO,
    Source,
    cross_fitted,
    fit,
    fit_tail,
    fit_tails,
    main,
    r_of,
    settings_of,
    worst,
    zoo,
)
from tests.helpers import ROOT
from tests.robust.runs import ONSET, disturbed, healthy
from tests.robust.studies import LOSS, made_run


def study() -> Study:
    runs = []
    for number in range(1, 5):
        spike = disturbed({"grad_norm": (slice(ONSET, None), 40.0 + number)}, seed=number)
        runs += [made_run(number, LOSS, spike), made_run(100 + number, "NONE", healthy(seed=100 + number))]
    return Study(Path("study"), runs, checksums=[str(number) for number in range(len(runs))])


def test_a_tail_by_hand() -> None:
    # 1,000 steps in one control run: 0 all the time, but for ten single records far apart, of heights 1 to 10.
    values = np.zeros(1000)
    values[40::100] = np.arange(1.0, 11.0)
    control = made_run(1, "NONE", Observations(np.arange(1, 1001), {"training_loss": values}))
    tail = fit_tail(Timeline.of([control]), values)
    # All ten are one a hundred steps; the largest was seen once in 1,000 steps: one decade rarer.
    assert tail.surprise(1.0) == pytest.approx(0.0, abs=1e-9)
    assert tail.bars[-1] == 10.0
    assert tail.surprises[-1] == pytest.approx(1.0)
    assert tail.surprise(7.0) == pytest.approx(-math.log10(4 / 1000 / 0.01), abs=0.1)


def test_what_is_always_there_is_not_rare() -> None:
    values = np.full(1000, 2.0)
    values[500] = 3.0
    control = made_run(1, "NONE", Observations(np.arange(1, 1001), {"training_loss": values}))
    tail = fit_tail(Timeline.of([control]), values)
    assert tail.surprise(2.0) == 0.0
    assert tail.surprise(3.0) == pytest.approx(1.0)


def test_what_never_moved_has_no_tail() -> None:
    timeline = Timeline.of([made_run(1, "NONE", healthy())])
    assert fit_tail(timeline, np.zeros(500)).bars == ()
    assert fit_tail(timeline, np.full(500, np.nan)).bars == ()


def test_only_healthy_steps_make_a_tail() -> None:
    values = np.concatenate([np.zeros(ONSET), np.full(500 - ONSET, 50.0)])
    values[100] = 1.0
    failing = made_run(1, LOSS, Observations(np.arange(1, 501), {"training_loss": values}))
    assert fit_tail(Timeline.of([failing]), values).bars[-1] == 1.0


def controls(*numbers: int) -> Source:
    """Healthy runs of these seeds."""
    return Source.of("controls", [made_run(number, "NONE", healthy(seed=number)) for number in numbers], jobs=1)


def test_the_fit_keeps_the_budget_in_each_source_and_finds_the_fault() -> None:
    ours, theirs = Source.of("ours", study().runs, jobs=1), controls(11, 13, 15, 17)
    fitted = fit([ours, theirs])
    for source in (ours, theirs):
        counts = source.timeline.count("strict", cross_fitted(source, [ours, theirs]), fitted.threshold)
        assert counts.fp.sum() <= 1e-4 * counts.healthy_steps.sum()
    assert ours.timeline.count("strict", r_of(fitted.tails, ours), fitted.threshold).tp.sum() == 4


def test_nothing_but_healthy_records_is_looked_at() -> None:
    runs = study().runs
    spoiled = [
        replace(item, observations=disturbed({"training_loss": (slice(ONSET, None), 50.0)}, seed=item.config["seed"]))
        if item.fault != "NONE"
        else item
        for item in runs
    ]
    one, other = (fit([Source.of("study", chosen, jobs=1)]) for chosen in (runs, spoiled))
    assert one == other


def test_a_fold_is_judged_by_the_others_and_by_the_other_sources() -> None:
    ours, theirs = controls(1, 3, 5, 7), controls(9, 11)
    found = cross_fitted(ours, [ours, theirs])
    alone = ours.folds == ours.folds[0]
    tails = fit_tails([theirs, ours.only(~alone)])
    assert np.array_equal(found[alone[ours.timeline.run]], r_of(tails, ours.only(alone)))


def test_a_fold_that_is_louder_than_all_others_stands_out() -> None:
    loud = disturbed({"grad_norm": ([*range(200, 208), *range(350, 358)], 30.0)}, seed=1)  # type: ignore[dict-item]
    runs = [made_run(1, "NONE", loud), *(made_run(number, "NONE", healthy(seed=number)) for number in (3, 5, 7))]
    source = Source.of("loud", runs, jobs=1)
    crossed = cross_fitted(source, [source])
    assert crossed.max() > r_of(fit_tails([source]), source).max() + 1.0


@given(st.floats(-1.0, 40.0))
def test_the_worst_source_decides(statistic: float) -> None:
    tails = [Tail((0.0, 2.0, 8.0), (0.0, 1.0, 2.0)), Tail((1.0, 3.0), (0.0, 2.0)), Tail((), ())]
    expected = min(tail.surprise(statistic) for tail in tails[:2])
    # Exact at the knots of both; between them it is drawn straight.
    assert worst(tails).surprise(statistic) == pytest.approx(expected, abs=0.35)
    for bar in (0.0, 1.0, 2.0, 3.0, 8.0):
        assert worst(tails).surprise(bar) == pytest.approx(min(tail.surprise(bar) for tail in tails[:2]))


def test_r_of_the_fit_is_r_of_the_metric() -> None:
    made = study()
    source = Source.of("study", made.runs, jobs=1)
    settings = RobustSettings.of(json.dumps(settings_of([source], {"study": ""}, 1e-4)))
    theirs = [value.r for item in made.runs for value in RobustRMetric(settings).extend(item.observations)]
    assert r_of(settings.tails, source) == pytest.approx(theirs, rel=1e-12)


def test_a_smaller_budget_gives_no_lower_threshold() -> None:
    source = controls(1, 3, 5, 7)
    high, low = (fit([source], budget).threshold for budget in (1e-2, 1e-4))
    assert high <= low


def test_without_a_judged_record_there_is_nothing_to_fit() -> None:
    silent = Observations(np.arange(1, 501), {"validation_loss": np.ones(500)})
    with pytest.raises(UserError, match="no record was healthy and judged"):
        fit([Source.of("silent", [made_run(1, LOSS, silent)], jobs=1).only(np.array([False]))])


def test_the_score_half_is_never_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = study()
    score = halves(made.runs).score.tolist()
    spoiled = [
        replace(item, observations=healthy(seed=7), events=[]) if scored else item
        for item, scored in zip(made.runs, score, strict=True)
    ]
    for name, runs in (("one", made.runs), ("two", spoiled)):
        again = Study(made.folder, runs, checksums=made.checksums)
        monkeypatch.setattr("studies.robust.fit.load_study", lambda folder, jobs, again=again: again)
        main(["--from", "anywhere", "--out", str(tmp_path / f"{name}.json"), "--jobs", "1"])
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    assert RobustSettings.read(tmp_path / "one.json").budget_per_step == 1e-4


def test_of_a_zoo_the_updates_of_half_the_kinds_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [made_run(number, "NONE", healthy(seed=number)) for number in range(6)]
    for item, kind in zip(runs, ("gan", "cnn_sgd", "lstm_sgd", "gpt_dropout", "triplet", "diffusion"), strict=True):
        item.config["model_type"] = kind
    monkeypatch.setattr("studies.robust.fit.load_study", lambda path, jobs: Study(path, runs, checksums=[]))
    found = zoo(Path("zoo.parquet"), jobs=1)
    assert len(found.timeline) == sum(may_be_fitted_to(item.model_type) for item in runs) == 3
    judged = [name for j, name in enumerate(STATISTICS) if np.isfinite(found.statistics[:, j]).any()]
    assert judged == [*OF_THE_ZOO]


def test_without_a_fit_half_there_is_nothing_to_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    even = Study(Path("even"), [made_run(2, "NONE", healthy())], checksums=["1"])
    monkeypatch.setattr("studies.robust.fit.load_study", lambda folder, jobs: even)
    assert main(["--from", "even"]) == 2
    assert main([]) == 2


@pytest.mark.parametrize("option", ["--from", "--strangers", "--zoo"])
def test_two_sets_of_one_name_are_refused(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([option, "A/logs", "B/logs", "--out", str(tmp_path / "mine.json")]) == 2
    assert "two of the sets are called logs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "name"),
    [("--zoo", "data/zoo_2.parquet"), ("--zoo", "logs_ZOO_4"), ("--from", "data/real_runs_transfer_3.parquet")],
)
def test_a_set_that_nothing_may_be_fitted_to_is_refused(
    option: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([option, name, "--out", str(tmp_path / "mine.json")]) == 2
    error = capsys.readouterr().err
    assert f"{name}: nothing may be fitted to" in error and error.count("\n") == 1


@pytest.mark.parametrize("text", ["", "{}", '{"version": 0}', "[]", '{"version": 2, "weights": 3}'])
def test_a_file_that_holds_no_settings_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text(text)
    with pytest.raises(UserError, match="fit them again"):
        RobustSettings.read(file)


def test_the_shipped_settings_say_where_they_come_from() -> None:
    text = (ROOT / "rmetric" / "robust" / "settings.json").read_text()
    origin = json.loads(text)["provenance"]
    assert [*origin["sources"]] == ["real_runs", "algoperf", "nanogpt", "zoo"]
    for source in origin["sources"].values():
        assert source["healthy_steps"] > 50_000
        assert len(source["data_sha256"]) == 64
    assert RobustSettings.of(text) == RobustSettings.shipped()
