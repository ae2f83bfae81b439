"""The benchmark: clocks, counts, alerts from a file, and the command."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rmetric.detectors import DETECTORS, ROBUST, Detector, make_detector, register_detector
from rmetric.errors import UserError
from rmetric.evaluation.protocols import Timeline
from rmetric.evaluation.scores import Score
from rmetric.evaluation.scoring import score_study
from rmetric.evaluation.studies import Study
from rmetric.records import Observations, Run
from studies.abroad.benchmark import ZOO, main, published, rows_of, wide_table
from studies.abroad.hindsight import another_process, refuse_found
from studies.abroad.labels import label_of
from studies.abroad.mistakes import mistakes
from studies.abroad.scoring import PER, alerts_in, bounds, judge, poisson_rate, row, scores_of_alerts
from studies.abroad.sources import (
    FITTED_CELLS,
    LEFT_OUT,
    Group,
    RunSet,
    own,
    set_name,
    stranger_timeline,
    untold,
    zoo,
)
from tests.evaluation.builders import build_run
from tests.studies.test_abroad_labels import learning

DATA = Path(__file__).parents[2] / "data"
RECORDS, CADENCE = 400, 100
Capture = pytest.CaptureFixture[str]


def source() -> RunSet:
    """Two runs, a record every 100 steps: an instability at records 200 to 204; a failure from record 300 on."""
    unstable, lost = learning(RECORDS), learning(RECORDS)
    unstable[200:205] += 3.0
    lost[300:] += 5.0
    runs = [
        Run(name, {"backend": "stranger"}, Observations(CADENCE * np.arange(RECORDS), {"training_loss": loss}))
        for name, loss in {"unstable": unstable, "lost": lost}.items()
    ]
    labels = [label_of(run) for run in runs]
    study = Study(Path("somewhere"), runs)
    groups = [Group("source", "some", np.ones(2, bool))]
    return RunSet("some", study, stranger_timeline(runs, labels), groups, labels)


def alerts(tmp_path: Path, *at: tuple[str, int]) -> Path:
    file = tmp_path / "alerts.csv"
    rows = [("some", run, CADENCE * record) for run, record in at]
    pd.DataFrame(rows, columns=["set", "run", "step"]).to_csv(file, index=False)
    return file


def test_alarms_are_counted_by_records_and_by_zone(tmp_path: Path) -> None:
    some = source()
    file = alerts(
        tmp_path,
        ("unstable", 20), ("unstable", 69), ("unstable", 130),  # 69 is one with 20: 48 quiet records between them
        ("unstable", 201),  # in the instability
        ("lost", 250), ("lost", 350),  # a warning; one that comes too late
    )  # fmt: skip
    judged = judge(some, scores_of_alerts(some, alerts_in(file), file), 0.5)
    assert judged.false_alarms.tolist() == [2, 0] and judged.of_age["first_per_10000"][0].tolist() == [1, 0]
    assert judged.warned.tolist() == [0, 1] and judged.missed.tolist() == [0, 0] and judged.lead[1] == 50
    assert judged.instabilities.tolist() == [1, 1] and judged.seen.tolist() == [1, 0]
    line = row(some, some.groups[0], "mine", judged)
    f1, rate = line["f1"], line["false_alarms_per_10000"]
    assert isinstance(f1, Score) and f1.value == pytest.approx(2 / 4)
    assert isinstance(rate, Score) and rate.value == pytest.approx(2e4 / judged.healthy.sum())


def test_every_mistake_is_a_row_with_the_evidence_that_there_was() -> None:
    some = source()
    scores = np.zeros(2 * RECORDS)
    scores[[20, 60, 203, RECORDS + 30]] = 0.9, 0.8, 0.4, 0.7  # 60 is one with 20; 203 is not enough in the instability
    found = [*mistakes(some, scores, 0.5, judge(some, scores, 0.5))]
    assert [(item["run"], item["mistake"], item["record"], item["score"]) for item in found] == [
        ("unstable", "false alarm", 20, 0.9),
        ("lost", "false alarm", 30, 0.7),
        ("lost", "missed failure", 200, 0.0),
        ("unstable", "missed instability", 197, 0.4),
        ("lost", "missed instability", 297, 0.0),
    ]
    assert [item["records_since_alert"] for item in found] == [None, None, 170, 137, 267]
    assert found[0]["step"] == CADENCE * 20 and found[3]["instabilities_before"] == 0


def test_a_detector_that_can_read_nothing_is_not_said_to_be_quiet() -> None:
    some = source()
    line = row(some, some.groups[0], "deaf", judge(some, np.full(2 * RECORDS, np.nan), 1.0))
    rate = line["false_alarms_per_10000"]
    assert isinstance(rate, Score) and not rate.defined and "reads" in rate.reason


@pytest.mark.parametrize(("told", "said"), LEFT_OUT.items())
def test_a_set_whose_users_tell_something_is_scored_as_if_they_did_not(told: str, said: str) -> None:
    some = source()
    assert not [*untold(some)]
    column = np.full(RECORDS, np.nan)
    column[200] = 1.0
    some.study.runs[0].observations.columns[told] = column
    (silent,) = untold(some)
    assert silent.name == f"some, {said}" and [group.name for group in silent.groups] == [silent.name]
    assert not any(run.observations.has(told) for run in silent.study.runs)
    assert some.study.runs[0].observations.has(told)
    for before, after in zip(some.study.runs, silent.study.runs, strict=True):
        np.testing.assert_array_equal(before.observations["training_loss"], after.observations["training_loss"])


def test_alerts_of_an_unknown_run_or_step_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not have"):
        scores_of_alerts(source(), alerts_in(alerts(tmp_path, ("nobody", 3))), "mine")
    file = alerts(tmp_path, ("lost", 3))
    file.write_text(file.read_text().replace("300", "301"))
    with pytest.raises(UserError, match="no record"):
        scores_of_alerts(source(), alerts_in(file), file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no CSV of alerts"),
        (b"\xff\xfe\x00\x80", "is no CSV of alerts"),
        (b"a,b\n1,2\n", "has columns 'a', 'b'; 'set', 'run' and 'step' are due"),
        (b"set,run,step\nzoo,lost,soon\n", "has a step 'soon'; a whole number is due"),
        (b"set,run,step\nzoo,lost,True\nzoo,lost,\n", "has a step 'True'; a whole number is due"),
        (b"set,run,step\nzoo,,300\n", "has an alert at step 300 without a set or a run"),
        (b"set,run,step\nzoo,lost,300,\n", "has more values in its rows than names in its first line"),
    ],
)
def test_a_file_that_holds_no_alerts_is_refused_in_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "alerts.csv").write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        alerts_in(tmp_path / "alerts.csv")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["robust_z", "mine", "healthy"])
def test_alerts_under_a_name_that_is_taken_are_refused(name: str, tmp_path: Path, capsys: Capture) -> None:
    file = alerts(tmp_path)
    assert main(["--alerts", f"mine={file}", "--alerts", f"{name}={file}", "--out", str(tmp_path)]) == 2
    assert f"{name} is the name of" in capsys.readouterr().err


@pytest.mark.usefixtures("clean_registries")
def test_a_detector_with_the_name_of_a_column_is_refused(tmp_path: Path, capsys: Capture) -> None:
    register_detector("level")(type("Level", (DETECTORS["robust_z"],), {}))
    assert main(["--detectors", "level", "--out", str(tmp_path)]) == 2
    assert "level is the name of a column of the tables" in capsys.readouterr().err


def test_a_set_that_nobody_knows_is_refused_with_those_known(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "alerts.csv"
    file.write_text("set,run,step\nalgoperff,lost,300\n")
    assert main(["--alerts", f"mine={file}", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "'algoperff', which nobody knows (known: algoperf, " in error and error.count("\n") == 1


def test_the_published_sets_are_found_from_any_folder_and_a_missing_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert [file.name for file in published(ZOO)] == [*ZOO]
    monkeypatch.setattr("studies.abroad.benchmark.DATA", tmp_path)
    assert not [*published(["zoo.parquet"])]
    assert "left out: zoo.parquet: not in" in capsys.readouterr().err


def test_two_sets_of_one_name_are_refused(tmp_path: Path, capsys: Capture) -> None:
    assert main(["--own", "A/logs_MINE", "--zoo", "B/mine.parquet", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "two of the sets are called mine" in error and error.count("\n") == 1


def test_the_cells_that_were_fitted_to_are_those_of_the_plan() -> None:
    plan = pytest.importorskip("studies.real_runs.plan", exc_type=ImportError)
    assert {(cell.model, cell.optimizer) for cell in plan.MATRIX} == FITTED_CELLS


def test_the_half_that_was_fitted_to_is_known_whatever_its_folder_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"backend": "torch", "model_type": "tiny-llama", "optimizer": "adamw"}
    configs = [
        {**said, "seed": 1, "repetition": 1},
        {**said, "seed": 2, "repetition": 2},
        {**said, "seed": 1_000_001, "repetition": 1},  # fresh
        {**said, "seed": 1, "repetition": 1, "optimizer": "sgd"},  # a transfer
    ]
    runs = [build_run([1, 2], name=str(number), **config) for number, config in enumerate(configs)]
    monkeypatch.setattr("studies.abroad.sources.load_study", lambda place: Study(place, runs))
    for place in ("logs_REAL", "data/real_runs.parquet"):
        assert own(Path(place)).groups[0].runs.tolist() == [False, True, True, True]


def test_a_detector_with_hindsight_is_refused(tmp_path: Path, capsys: Capture) -> None:
    assert main(["--detectors", "isolation_forest", "--out", str(tmp_path)]) == 2
    assert "isolation_forest judges a record with later ones in view" in capsys.readouterr().err


@pytest.mark.usefixtures("clean_registries")
@pytest.mark.parametrize(
    ("scores", "told"),
    [
        ("loss - loss.mean()", "peek scores a record with later ones in view: in run "),
        ("np.append(loss[1:], np.nan)", "peek scores a record with later ones in view: in run "),
        ("loss + np.random.default_rng().random()", "peek gives other scores for the same records: in run "),
        (
            "loss - vars(sys.modules[__name__]).setdefault('of_first', loss.mean())",
            "peek gives other scores for the same records: in run ",
        ),
        ("np.where(np.arange(len(loss)) < 5, np.nan, np.cumsum(loss))", ""),
    ],
)
def test_a_detector_whose_scores_depend_on_later_records_or_other_runs_is_refused(
    scores: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("studies.abroad.benchmark.DATA", tmp_path)
    (plugin := tmp_path / "peek.py").write_text(
        "import sys\nfrom dataclasses import dataclass\nimport numpy as np\nfrom rmetric import register_detector\n"
        "from rmetric.detectors import Detector\n@register_detector('peek')\n@dataclass(kw_only=True)\n"
        "class Peek(Detector):\n    threshold: float = 0.5\n    def score_run(self, observations):\n"
        f"        loss = observations['training_loss']\n        return {scores}\n"
    )
    logs = Path(__file__).parents[1] / "data" / "real_runs"
    call = ["--zoo", str(logs), "--own", "--plugin", str(plugin), "--detectors", "peek", "--jobs", "1"]
    assert main([*call, "--out", str(tmp_path / "out")]) == (2 if told else 0)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"error: {told}") if told else "error" not in last


@pytest.mark.usefixtures("clean_registries")
def test_an_endless_threshold_hides_no_hindsight() -> None:
    @register_detector("endless")
    @dataclass(kw_only=True)
    class Endless(Detector):
        threshold: float = np.inf

        def score_run(self, observations: Observations) -> np.ndarray:
            return observations["training_loss"] - observations["training_loss"].mean()

    with pytest.raises(UserError, match="endless scores a record with later ones in view"), another_process() as beside:
        refuse_found(source(), {"endless": make_detector("endless")}, [], beside)


@pytest.mark.usefixtures("clean_registries")
def test_a_detector_that_another_process_cannot_load_is_tried_in_this_one() -> None:
    @register_detector("local")
    @dataclass(kw_only=True)
    class Local(Detector):
        threshold: float = 0.5

        def score_run(self, observations: Observations) -> np.ndarray:
            return observations["training_loss"].copy()

    with another_process() as beside:
        refuse_found(source(), {"local": make_detector("local")}, [], beside)


def test_a_group_without_runs_has_no_line() -> None:
    some = source()
    some = replace(some, groups=[*some.groups, Group("half", "empty", np.zeros(2, bool))])
    judged = {"mine": judge(some, np.zeros(2 * RECORDS), 0.5)}
    assert [line["name"] for line in rows_of(some, judged)] == ["some"]


def test_a_folder_is_called_as_it_is_even_where_it_is_the_one_that_one_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place := tmp_path / "logs_MY.v2" / "inner").mkdir(parents=True)
    monkeypatch.chdir(place)
    assert [*map(set_name, map(Path, (".", "..", "../../logs_MY.v2", "zoo.parquet")))] == [
        "inner",
        *2 * ["my.v2"],
        "zoo",
    ]


def test_exact_interval_of_a_rate() -> None:
    rate = poisson_rate(3, 10_000)
    assert (round(rate.low, 3), rate.value, round(rate.high, 3)) == (0.619, 3.0, 8.767)


def test_the_worst_line_names_the_highest_rate_of_a_large_source() -> None:
    shared = {"level": "source", "detector": "mine", "false_alarms_per_10000": poisson_rate(1, 10_000)}
    rows = [
        {**shared, "name": "quiet", "healthy": 10_000},
        {**shared, "name": "loud", "healthy": 10_000, "false_alarms_per_10000": poisson_rate(9, 10_000)},
        {**shared, "name": "small", "healthy": 10, "false_alarms_per_10000": poisson_rate(1, 10)},
    ]
    worst = wide_table(rows).rows[-1]["mine"]
    assert isinstance(worst, Score) and worst.value == pytest.approx(9.0)


@pytest.mark.slow
def test_the_page_has_todays_false_alarms_in_the_zoos_that_nothing_was_fitted_to() -> None:
    detector = make_detector(ROBUST)
    told, untold_ = np.zeros((2, 2), dtype=int)
    for name in ("zoo_2", "zoo_3"):
        whole = zoo(DATA / f"{name}.parquet")
        for counts, some in zip((told, untold_), (whole, *untold(whole)), strict=True):
            scores = score_study(some.study, {ROBUST: detector}, jobs=1)[ROBUST]
            judged = judge(some, np.asarray(scores), detector.threshold)
            counts += judged.false_alarms.sum(), judged.healthy.sum()
    rates = [PER * alarms / steps for alarms, steps in (told, untold_)]
    page = (DATA.parent / "docs" / "abroad.md").read_text(encoding="utf-8")
    assert (
        "| 0.79 | {:.1f}; nothing announced {:.1f} |".format(*rates) in page
    )  # what the other columns need is not here


def test_the_command_scores_a_folder_of_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RMETRIC_STRANGERS", raising=False)
    monkeypatch.setattr("studies.abroad.benchmark.DATA", tmp_path)  # no strangers: they take a minute
    logs = Path(__file__).parents[1] / "data" / "real_runs"
    call = ["--zoo", str(logs), "--own", "--detectors", "robust_z", "numerics", "--jobs", "1", "--out", str(tmp_path)]
    assert main(call) == 0
    table, wrong = (pd.read_csv(tmp_path / f"abroad_{name}.csv") for name in ("all", "mistakes"))
    alarms = table[(table["detector"] == "robust_z") & (table["level"] == "source")]["false_alarms"].astype(int).sum()
    assert ((wrong["detector"] == "robust_z") & (wrong["mistake"] == "false alarm")).sum() == alarms
    assert {*table["detector"]} == {"robust_z", "numerics"} and {*table["level"]} >= {"source", "bug"}


@pytest.mark.parametrize("option", ["--zoo", "--own"])
def test_alerts_name_a_folder_of_logs_as_the_table_does(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("studies.abroad.benchmark.DATA", tmp_path)
    (logs := tmp_path / "logs_MINE").mkdir()
    records = [{"event": "METRICS", "step": step, "training_loss": 2.0} for step in range(1, 40)]
    events = [{"event": "EXPERIMENT_START", "config": {}}, *records, {"event": "EXPERIMENT_SUCCESS", "step": 39}]
    (logs / "run.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (file := tmp_path / "alerts.csv").write_text("set,run,step\nmine,run,20\nmine,run\nmine,run,\n")
    call = ["--zoo", "--own", option, str(logs), "--detectors", "numerics", "--alerts", f"theirs={file}"]
    assert main([*call, "--jobs", "1", "--out", str(tmp_path / "out")]) == 0
    table = pd.read_csv(tmp_path / "out" / "abroad_all.csv")
    assert table.loc[table["detector"] == "theirs", "false_alarms"].iloc[0] == 1
    assert f"left out: 2 of 3 rows of {file}, which have no step\n" in capsys.readouterr().err


def test_damaged_logs_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr("studies.abroad.benchmark.DATA", tmp_path)
    (logs := tmp_path / "mine").mkdir()
    (logs / "run.jsonl").write_text('{"event": "METRICS", "step": 1, "training_loss": 2.0}\n2,1.9\n')
    call = ["--zoo", str(logs), "--own", "--detectors", "numerics", "--jobs", "1", "--out", str(tmp_path / "out")]
    assert main(call) == 0
    assert "warning: mine: 1 of 1 logs are damaged" in capsys.readouterr().err


def test_a_missing_zoo_is_told_without_an_option_of_another_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("studies.abroad.benchmark.DATA", tmp_path)
    assert main(["--zoo", str(tmp_path / "none"), "--own", "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "none does not exist; name a folder of logs" in error and "--logs" not in error


def test_the_bounds_see_what_differs_from_the_twin_and_nothing_where_there_is_none() -> None:
    loss = 2.0 + 0.01 * np.random.default_rng(0).normal(size=RECORDS)
    step, usual = range(1, RECORDS + 1), {"training_loss": loss, "step_time_s": np.full(RECORDS, 0.02)}
    runs = [build_run(step, name="twin", columns=usual)]
    for name, rise in {"slight": 0.02, "clear": 0.2}.items():
        columns = {**usual, "training_loss": loss + rise * (np.arange(RECORDS) >= 300)}
        runs.append(build_run(step, name=name, onset=301, failure=350, columns=columns, twin="twin"))
    groups = [Group("source", "some", np.ones(3, bool))]
    found = bounds(RunSet("some", Study(Path("somewhere"), runs), Timeline.of(runs), groups))
    assert [judged.warned.tolist() for judged in found.values()] == [[0, 1, 1], [0, 0, 1]]
    assert not any(judged.false_alarms.any() for judged in found.values())
    assert bounds(source()) == {}
