"""Simulated against real: the comparison, its tables, its figure and its command."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from rmetric.evaluation.scores import Score
from rmetric.evaluation.studies import load_study
from rmetric.simulation import RunSpec, TrainingSimulator, judge_traces, write_logs
from studies.calibration import figure as picture
from studies.calibration.compare import main
from studies.calibration.comparison import (
    FEWEST_FAILED,
    Compared,
    Comparison,
    compare,
    detectors,
    median_incubation,
    rank_correlation,
    tables,
)

FAULTS = ("LR_SPIKE", "RMS_NORM_ERROR", "NONE")


def _write(folder: Path, seeds: range) -> Path:
    folder.mkdir()
    specs = [
        RunSpec(architecture="llama-3-8b", fault=fault, severity="high", seed=seed, repetition=seed % 4 + 1, steps=900)
        for fault in FAULTS
        for seed in seeds
    ]
    specs = [replace(spec, number=number) for number, spec in enumerate(specs)]
    traces = TrainingSimulator().simulate(specs)
    for log in write_logs(traces, judge_traces(traces)):
        (folder / f"{log.name}.jsonl").write_bytes(log.content)
    return folder


@pytest.fixture(scope="module")
def folders(made_up_parameters: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two worlds of one kind: only their seeds differ."""
    place = tmp_path_factory.mktemp("worlds")
    return _write(place / "simulated", range(8)), _write(place / "real", range(100, 108))


@pytest.fixture(scope="module")
def comparison(folders: tuple[Path, Path]) -> Comparison:
    simulated, real = (load_study(folder).runs for folder in folders)
    return compare(simulated, real)


def test_two_worlds_of_one_kind_are_alike(comparison: Comparison) -> None:
    spread = [row for row in comparison.noise if row.statistic == "standard deviation" and row.of != ("step_time_s",)]
    assert len(spread) == 4
    assert all(row.matches for row in spread)
    assert {row.of for row in comparison.faults} == {(fault, "high") for fault in FAULTS[:2]}
    assert {row.statistic for row in comparison.faults} == {"failed", "recovered", "incubation"}


def test_the_score_half_alone_is_compared(comparison: Comparison) -> None:
    assert comparison.runs == (24, 12)


def test_what_does_not_match_is_named() -> None:
    score, far = Score(0.5, 0.4, 0.6), Score(0.9, 0.9, 0.9)
    rows = [Compared(("A", "low"), "failed", score, score), Compared(("B", "low"), "failed", far, score)]
    found = tables(Comparison([], rows, [], Score.undefined("none"), 10, (1, 1)))
    assert len(found) == 2
    assert found[1].notes == ["1 of 2 numbers match. Those that do not: B low (failed)."]


@pytest.mark.parametrize("failed", [1, 2, 3])
def test_few_failed_runs_have_no_median_of_their_steps(failed: int) -> None:
    found = median_incubation([("failed", 177)] * failed + [("recovered", None)] * 9)
    assert found.defined == (failed == FEWEST_FAILED)
    assert Compared(("A", "low"), "incubation", Score(822.0), found).matches == (False if found.defined else None)


def test_an_undefined_number_neither_matches_nor_does_not() -> None:
    assert Compared(("A",), "F1", Score.undefined("none"), Score(0.5)).matches is None


@pytest.mark.parametrize(("real", "expected"), [([0.1, 0.2, 0.3], 1.0), ([0.3, 0.2, 0.1], -1.0)])
def test_ranks_correlate(real: list[float], expected: float) -> None:
    pairs = zip([0.5, 0.6, 0.7], real, strict=True)
    rows = [Compared((str(k),), "F1", Score(a), Score(b)) for k, (a, b) in enumerate(pairs)]
    assert rank_correlation(rows).value == pytest.approx(expected)
    assert not rank_correlation(rows[:2]).defined


def test_the_caption_of_the_ranks_says_what_their_interval_is_over() -> None:
    assert detectors.caption.endswith("The rank correlation's interval is over detectors.")


def test_the_figure_has_four_panels(comparison: Comparison) -> None:
    assert len(picture.figure(comparison).axes) == 4


@pytest.mark.slow
def test_the_command_writes_tables_and_the_figure(
    folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated, real = map(str, folders)
    asked = ["--simulated", simulated, "--real", real, "--out", str(tmp_path / "out"), "--no-detectors", "--jobs", "1"]
    main(asked)
    assert shlex.join(asked) in (tmp_path / "out" / "captions.md").read_text()
    assert "Simulated against real" in capsys.readouterr().out
    assert {path.suffix for path in (tmp_path / "out").iterdir()} >= {".md", ".csv", ".png"}


def test_points_that_fall_together_stay_within_the_range_and_keep_their_intervals() -> None:
    none, all_ = Score(0.0, 0.0, 0.3), Score(1.0, 0.7, 1.0)
    rows = [Compared((f"F{k}", "low"), "failed", value, value) for k in range(12) for value in (none, all_)]
    drawn = picture.figure(Comparison([], rows, [], Score.undefined("none"), 10, (1, 1)))
    drawn.canvas.draw()
    ax = drawn.axes[1]
    low, high = ax.transData.transform([(0.0, 0.0), (1.0, 1.0)])
    points = [line.get_transform().transform(line.get_xydata()) for line in ax.lines[1:]]  # the first is the diagonal
    for interval, point in zip(points[::2], points[1::2], strict=True):
        assert (point[0] >= low - 0.01).all() and (point[0] <= high + 0.01).all()
        assert interval[0][1] == pytest.approx(point[0][1])
    assert len({tuple(point[0].round(3)) for point in points[1::2]}) == len(rows)
