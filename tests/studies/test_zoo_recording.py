"""The zoo's recording: which runs it has, that forks share their twin's steps, and that a folder can grow."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rmetric.errors import UserError
from rmetric.evaluation.protocols import Timeline
from rmetric.faults.bugs import BUGS_OF_PARTS
from rmetric.log_reader import read_log
from rmetric.measurements import MEASUREMENTS
from rmetric.records import Run
from studies.runner import run_study
from studies.zoo import record
from studies.zoo.disturbances import DISTURBANCES
from studies.zoo.plan import ZooPlan, ZooSpec, can_have, fitting_disturbances, groups_of
from studies.zoo.run import ZOO, record_here
from studies.zoo.training import KINDS, Examples, KindRun
from tests.helpers import ROOT

SMALL = ZooPlan(kinds=("cnn_sgd",), seeds=(0,), steps=70, eval_every=10)
ONSET = 23
CLOCK = ("step_time_s", "lambda")


def test_every_kind_and_seed_has_a_twin_and_two_forks_with_different_disturbances() -> None:
    plan = ZooPlan(kinds=("cnn_sgd",), seeds=tuple(range(40)))
    specs = plan.specs()
    assert len({spec.experiment_id for spec in specs}) == len(specs) == 40 * 3
    for group in groups_of(specs):
        assert [spec.onset is None for spec in group] == [True, False, False]
        assert group[1].disturbance != group[2].disturbance
        assert group[1].twin == group[2].twin == group[0].experiment_id
    taken = Counter(spec.disturbance for spec in specs if spec.disturbance)
    assert {*taken} == {*DISTURBANCES}
    onsets = np.array([spec.onset for spec in specs if spec.onset])
    assert onsets.min() >= 300
    assert onsets.max() <= 900
    assert len(set(onsets % 5)) == 5


def test_more_kinds_seeds_and_bugs_change_no_run() -> None:
    few = ZooPlan(kinds=("cnn_sgd",), seeds=(1,)).specs()
    assert {*few} <= {*ZooPlan(kinds=("cnn_sgd",), seeds=(0, 1, 2)).specs()}
    one = ZooPlan(kinds=("cnn_sgd",), seeds=(1,), bugs=("LARGE_LR",)).specs()
    assert {*one} <= {*ZooPlan(kinds=("cnn_sgd",), seeds=(1,), bugs=("LR_SPIKE", "LARGE_LR")).specs()}


def test_a_bug_is_left_out_where_a_kind_cannot_have_it() -> None:
    assert can_have("cnn_sgd", "LARGE_LR", 1000, 800)
    assert can_have("cnn_sgd", "SCHEDULE_STEPPED_TWICE", 1000, 800)
    assert not can_have("cnn_sgd", "ROUTER_IMBALANCE", 1000, 800)
    assert not can_have("word_tied", "SCHEDULE_STEPPED_TWICE", 1000, 800)
    specs = ZooPlan(kinds=("cnn_sgd",), seeds=(0,), bugs=("LARGE_LR", "ROUTER_IMBALANCE")).specs()
    assert [spec.fault for spec in specs] == ["NONE", "LARGE_LR"]
    assert not ZooPlan(kinds=("cnn_sgd",), bugs=("ROUTER_IMBALANCE",)).specs()


@pytest.mark.long
def test_every_bug_is_on_eight_kinds_at_least_if_it_needs_no_part_that_few_have() -> None:
    plan = ZooPlan.with_bugs()
    taken = Counter(spec.fault for spec in plan.specs() if spec.fault != "NONE")
    assert {*taken} == {*plan.bugs}
    assert max(taken.values()) <= plan.kinds_a_bug
    assert min(taken[bug] for bug in plan.bugs if bug not in BUGS_OF_PARTS) >= 8
    assert min(taken[bug] for bug in BUGS_OF_PARTS) >= 3


def test_bugs_of_one_name_have_logs_of_their_own() -> None:
    one, two = (ZooSpec(kind="cnn_sgd", seed=0, fault=f"LARGE_LR:factor={factor}", onset=9) for factor in (10, 100))
    assert one.experiment_id != two.experiment_id
    assert one.make_fault().parameters["factor"] == 10.0  # type: ignore[union-attr]


def test_without_names_the_kinds_of_one_published_set_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ZooPlan().chosen_kinds
    monkeypatch.setattr(KINDS["cnn_sgd"], "zoo", "zoo_of_others")
    assert ZooPlan(zoo="zoo_of_others").chosen_kinds == ("cnn_sgd",)
    assert ZooPlan().chosen_kinds == tuple(name for name in first if name != "cnn_sgd")
    assert ZooPlan(zoo="zoo_of_others", kinds=("gan",)).chosen_kinds == ("gan",)


def test_twins_alone_are_those_that_have_forks_elsewhere() -> None:
    twins = ZooPlan(kinds=("cnn_sgd",), disturbed=0).specs()
    assert twins == [spec for spec in ZooPlan(kinds=("cnn_sgd",)).specs() if spec.twin is None]


@pytest.mark.slow
@pytest.mark.parametrize("zoo", ["zoo", "zoo_2", "zoo_3"])
def test_the_published_runs_are_those_of_the_plan(zoo: str) -> None:
    index = ROOT / "data" / f"{zoo}_index.csv"
    published = {row["run"] for row in csv.DictReader(index.read_text(encoding="utf-8").splitlines())}
    assert published <= {spec.experiment_id for spec in ZooPlan(zoo=zoo).specs()}


def test_a_set_is_chosen_on_the_command_line_and_an_unknown_one_lists_the_others(tmp_path: Path, capsys) -> None:
    assert record.main(["--zoo", "zo", "--out", str(tmp_path)]) == 2
    assert "belongs to the set 'zo'; choose among zoo" in capsys.readouterr().err


def test_what_cannot_be_recorded_is_refused() -> None:
    with pytest.raises(UserError, match="did you mean 'cnn_sgd'"):
        ZooPlan(kinds=("cnn_sdg",))
    with pytest.raises(UserError, match="too short"):
        ZooPlan(steps=8)


def test_a_batch_of_another_type_has_no_disturbed_rows() -> None:
    fitting = {name for name, item in DISTURBANCES.items() if item.fits(object())}
    assert fitting == {"lr_restart", "stall", "checkpoint"}
    assert {*fitting_disturbances("cnn_sgd")} == {*DISTURBANCES}


@pytest.mark.parametrize("name", ["bad_batch", "data_shift", "data_mix"])
def test_a_part_of_the_rows_is_disturbed_and_values_keep_their_column_s_range(name: str) -> None:
    run = KindRun(KINDS["cnn_sgd"](), 0, 40)
    run.step = 5
    with DISTURBANCES[name].disturb(run):
        run.step = 6
        batch = run.batch()
        assert isinstance(batch, Examples)
        changed = run.hooks["batch"][0](batch)
        again = run.hooks["batch"][0](batch)
    rows = (changed.inputs != batch.inputs).flatten(1).any(dim=1).double().mean()
    share = DISTURBANCES[name].row_share  # type: ignore[attr-defined]
    assert 0.5 * share < rows <= share + 0.01
    assert bool((changed.inputs == again.inputs).all())
    if name != "data_shift":
        assert bool((changed.inputs.amax(dim=0) <= batch.inputs.amax(dim=0)).all())
    assert not run.hooks["batch"]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A twin, a fork with each disturbance, and one with a bug."""
    folder = tmp_path_factory.mktemp("zoo")
    twin = ZooSpec(kind="cnn_sgd", seed=0)
    specs = [twin, *(replace(twin, disturbance=name, onset=ONSET) for name in DISTURBANCES)]
    specs.append(replace(twin, fault="LARGE_LR", onset=ONSET))
    finished = list(record_here(SMALL, specs, folder, ()))
    assert not list(folder.glob(".*"))
    assert [item.records for item in finished] == [70] * len(specs)
    return {spec.disturbance or spec.fault: read_log(folder / f"{spec.experiment_id}.jsonl") for spec in specs}


@pytest.mark.slow
def test_forks_share_what_comes_before_them_to_the_last_digit(group: dict[str, Run]) -> None:
    twin = group["NONE"].observations
    for run in group.values():
        for name in MEASUREMENTS:
            mine = run.observations[name][: ONSET - 1]
            np.testing.assert_array_equal(mine, twin[name][: ONSET - 1], err_msg=f"{run.name} {name}")


@pytest.mark.slow
def test_what_takes_time_alone_leaves_the_training_as_it_is(group: dict[str, Run]) -> None:
    twin = group["NONE"].observations
    for disturbance in ("stall", "checkpoint"):
        for name in {*MEASUREMENTS} - {*CLOCK}:
            np.testing.assert_array_equal(group[disturbance].observations[name], twin[name], err_msg=name)
    times = group["stall"].observations["step_time_s"]
    assert (times[ONSET : ONSET + 2] > 0.05).all()


@pytest.mark.slow
def test_what_changes_the_training_does(group: dict[str, Run]) -> None:
    twin = group["NONE"].observations["training_loss"]
    for disturbance in ("bad_batch", "lr_restart", "data_shift", "data_mix", "LARGE_LR"):
        assert (group[disturbance].observations["training_loss"][ONSET:] != twin[ONSET:]).all()


@pytest.mark.slow
def test_the_logs_are_read_as_those_of_a_study(group: dict[str, Run]) -> None:
    runs = list(group.values())
    timeline = Timeline.of(runs)
    controls = [run for run in runs if run.fault == "NONE"]
    own = 70 - ONSET + 1
    clean = [truth.kind == "clean" for run, truth in zip(runs, timeline.truths, strict=True) if run in controls]
    assert timeline.healthy_steps.sum() == 70 + own * (sum(clean) - 1)
    config = group["stall"].config
    assert (config["backend"], config["model_type"], config["repetition"]) == ("zoo", "cnn_sgd", 1)
    assert config["disturbance"]["step"] == group["stall"].disturbed_at == ONSET
    assert config["twin"] == group["NONE"].name
    assert group["LARGE_LR"].onset == ONSET


@pytest.mark.long
def test_a_folder_grows_and_a_recording_with_other_settings_is_refused(tmp_path: Path, capsys) -> None:
    command = ["--out", str(tmp_path), "--kinds", "cnn_sgd", "--steps", "28", "--jobs", "1", "--resume", "--seeds"]
    assert record.main([*command, "0"]) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.jsonl")}
    assert record.main([*command, "1"]) == 0
    assert "3 runs (3 made now" in capsys.readouterr().out
    assert all((tmp_path / name).read_bytes() == content for name, content in before.items())
    both = replace(SMALL, zoo="another", seeds=(0, 1), steps=28, eval_every=25)
    assert run_study(both, tmp_path, backend=ZOO, resume=True).made == 0
    with pytest.raises(UserError, match="holds another study"):
        run_study(replace(both, steps=42), tmp_path, backend=ZOO, resume=True)
