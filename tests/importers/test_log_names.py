"""Runs whose files are called the same are told apart in what every command says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rmetric.commands import main
from rmetric.importers.log_names import Place, shown_names
from rmetric.watch.watched_log import WatchedLog

ROWS = [{"step": step, "loss": 3.0 - step / 100} for step in range(60)]
WRITERS: dict[str, Callable[[], str]] = {
    "trainer_state.json": lambda: json.dumps({"log_history": ROWS}),
    "log_history.json": lambda: json.dumps(ROWS),
    "wandb-history.jsonl": lambda: "".join(f"{json.dumps(row)}\n" for row in ROWS),
    "metrics.csv": lambda: "step,loss\n" + "".join(f"{row['step']},{row['loss']}\n" for row in ROWS),
    "output.log": lambda: "".join(f"step {row['step']} loss {row['loss']}\n" for row in ROWS),
}


def written(log: Path) -> str:
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(WRITERS[log.name]())
    return str(log)


@pytest.mark.parametrize(
    ("places", "names"),
    [
        (["a/metrics.csv", "b/metrics.csv"], ["a/metrics", "b/metrics"]),
        (["a/version_0/metrics.csv", "b/version_0/metrics.csv"], ["a/version_0/metrics", "b/version_0/metrics"]),
        (["a/log_history.json", "b/log_history.json"], ["a/log_history", "b/log_history"]),
        (["a/wandb-history.jsonl", "b/output.log"], ["wandb-history", "output"]),
        (["a/trainer_state.json", "b/trainer_state.json"], ["a", "b"]),
        (
            ["a/checkpoint-5/trainer_state.json", "a/checkpoint-9/trainer_state.json"],
            ["a/checkpoint-5", "a/checkpoint-9"],
        ),
        (["r1/checkpoint-5/trainer_state.json", "r2/checkpoint-9/trainer_state.json"], ["r1", "r2"]),
        (["a/eval.csv", "a/eval.jsonl"], ["a/eval.csv", "a/eval.jsonl"]),
        (["a/events.out.tfevents.17.host.1.0", "b/events.out.tfevents.18.host.1.0"], ["a", "b"]),
        (["a/output.log"], ["output"]),
        (["a/trainer_state.json"], ["a"]),
        (["a/lr0.1.csv", "a/lr0.2.csv"], ["lr0.1", "lr0.2"]),
    ],
)  # fmt: skip
def test_files_of_one_name_are_told_apart_by_their_folders(places: list[str], names: list[str]) -> None:
    assert shown_names([(Path(place), Path(place).stem) for place in places]) == names


def test_a_folder_that_is_a_log_keeps_what_looks_like_an_ending(tmp_path: Path) -> None:
    folders = [tmp_path / "lr0.1", tmp_path / "lr0.2"]
    for folder in folders:
        folder.mkdir()
    assert shown_names([(folder, folder.stem) for folder in folders]) == ["lr0.1", "lr0.2"]


def test_runs_of_one_name_in_several_logs_are_told_apart_by_the_log() -> None:
    runs = [(Path(log), run) for log in ("a.csv", "b.csv") for run in ("seed 1", "seed/2")]
    assert shown_names(runs) == ["a/seed 1", "a/seed/2", "b/seed 1", "b/seed/2"]
    assert shown_names([(Path("a.csv"), "seed 1"), (Path("a.json"), "seed 1")]) == ["a.csv/seed 1", "a.json/seed 1"]
    assert Place.of(Path("/x/a.csv"), "a").below(Path("/elsewhere")) == "a"


@pytest.mark.parametrize("name", WRITERS)
def test_every_command_tells_them_apart(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = [written(tmp_path / folder / name) for folder in ("first", "second")]
    main(["diagnose", *logs])
    told = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()[:2]]
    assert told[0] != told[1] and "first" in told[0] and "second" in told[1]
    main(["compare", *logs])
    assert f"{told[0]} and {told[1]}: " in capsys.readouterr().out
    main(["report", *logs, "--out", str(tmp_path / "page.html")])
    assert all(one in (tmp_path / "page.html").read_text() for one in told)
    main(["replay", *logs, "--no-plot", "--out", str(tmp_path / "out")])
    assert {one.replace("/", "-") for one in told} <= {file.stem for file in (tmp_path / "out").glob("*.csv")}


def test_a_watched_run_is_called_by_its_folders_and_not_by_its_checkpoint(tmp_path: Path) -> None:
    first, second = (tmp_path / f"sweep/a/checkpoint-{step}/trainer_state.json" for step in (10, 20))
    written(first)
    log = WatchedLog(first, within=tmp_path)
    log.poll(0.0)
    written(second)
    log.move_to(second)
    log.poll(1.0)
    assert [run.name for run in log.runs] == ["sweep/a"]
    alone = WatchedLog(Path(written(tmp_path / "b" / "metrics.csv")))
    alone.poll(0.0)
    assert [run.name for run in alone.runs] == ["metrics"]
