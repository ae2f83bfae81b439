"""Small logs in the layouts of many training programs, written here: for tests of the importers and for mutations.

Every sample is a run of 40 training losses that fall from 4, and of some evaluations; only the layout differs.
"""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import sample_consoles as consoles
from sample_values import EVERY, POINTS, loss, steps, validation


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A log and what a person finds in it."""

    name: str
    file: str
    """File name, or folder."""
    write: Callable[[Path], None]
    format: str
    evaluations: int = POINTS // EVERY
    points: int = POINTS
    first: float = loss(1)
    last: float = loss(POINTS)
    runs: int = 1
    note: str = ""
    """Part of a note that it comes with."""


def text_sample(name: str, ending: str, lines: Callable[[], Iterator[str]], **about: object) -> Sample:
    """A sample of lines."""

    def write(path: Path) -> None:
        path.write_text("".join(f"{line}\n" for line in lines()))

    return Sample(name=name, file=f"{name}{ending}", write=write, **about)  # type: ignore[arg-type]


# --- JSON and tables ------------------------------------------------------------------------------------------------


def llama_factory() -> Iterator[str]:
    """LLaMA-Factory's trainer_log.jsonl."""
    for step, evaluated in steps():
        entry = {"current_steps": step, "total_steps": POINTS, "loss": loss(step), "eval_loss": None, "reward": None}
        yield json.dumps(entry | {"learning_rate": 4e-5, "epoch": step / 100, "elapsed_time": "0:03:29"})
        if evaluated:
            yield json.dumps(
                {"current_steps": step, "total_steps": POINTS, "eval_loss": validation(step), "loss": None}
            )


def mmengine_json() -> Iterator[str]:
    """mmengine's scalars."""
    for step, _ in steps():
        yield json.dumps(
            {"lr": 4e-8, "data_time": 9.0, "loss": loss(step), "loss_kpt": 0.4, "epoch": 1, "iter": step, "step": step}
        )


def mmcv_json() -> Iterator[str]:
    """mmcv's older log: iterations of the epoch."""
    yield json.dumps({"env_info": "sys.platform: linux", "seed": 0})
    for step, _ in steps():
        epoch, batch = (step - 1) // EVERY + 1, (step - 1) % EVERY + 1
        yield json.dumps(
            {"mode": "train", "epoch": epoch, "iter": batch * 50, "lr": 0.01, "memory": 1, "loss": loss(step)}
        )


def detectron2_json() -> Iterator[str]:
    """detectron2's metrics.json."""
    for step, evaluated in steps():
        entry = {"iteration": step * 20 - 1, "total_loss": loss(step), "loss_cls": 0.8, "lr": 0.0002}
        yield json.dumps(entry | ({"validation_loss": validation(step)} if evaluated else {}))


def keras_history() -> Iterator[str]:
    """Keras's history, dumped at the end."""
    losses = {"loss": [loss(step) for step, _ in steps()], "val_loss": [validation(step) for step, _ in steps()]}
    yield json.dumps({"config": {"loss": "mse"}, "history": losses, "test_loss": 2.0})


def _table(rows: Sequence[dict[str, object]]) -> Iterator[str]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    yield from text.getvalue().splitlines()


def lightning_csv() -> Iterator[str]:
    """Lightning's CSVLogger: sparse, a mean of the epoch under a name of its own, the step late in the row."""
    rows: list[dict[str, object]] = [{"lr-AdamW": 0.0002, "epoch": "", "train_loss_epoch": "", "step": 0}]
    for step, evaluated in steps():
        rows.append({"epoch": 0, "step": step, "train_loss_step": loss(step)})
        if evaluated:
            rows.append({"epoch": 0, "step": step, "val_loss": validation(step)})
            rows.append({"epoch": 0, "step": step, "train_loss_epoch": 3.3})
    return _table(rows)


def keras_csv() -> Iterator[str]:
    """Keras's CSVLogger: epochs alone."""
    return _table([{"epoch": s - 1, "accuracy": 0.5, "loss": loss(s), "val_loss": validation(s)} for s, _ in steps()])


def ultralytics_csv() -> Iterator[str]:
    """Ultralytics' results.csv: padded names, losses of parts."""
    names = [
        "epoch",
        "train/box_loss",
        "train/cls_loss",
        "metrics/precision(B)",
        "val/box_loss",
        "val/cls_loss",
        "lr/pg0",
    ]
    yield ",".join(f"{name:>23}" for name in names)
    for step, _ in steps():
        row = [step - 1, loss(step) - 1, 1.0, 0.5, validation(step) - 1, 1.0, 0.01]
        yield ",".join(f"{value:>23.6g}" for value in row)


def bare_losses() -> Iterator[str]:
    """Steps and losses as ``numpy.savetxt`` writes them."""
    for step, _ in steps():
        yield f"{step:.18e} {loss(step):.18e}"


def metrics_without_a_step() -> Iterator[str]:
    """A list of losses."""
    return _table([{"loss": loss(step), "note": "x"} for step, _ in steps()])


def trainer_state(path: Path) -> None:
    """The Trainer's state with its closing entry."""
    entries: list[dict[str, object]] = []
    for step, evaluated in steps():
        entries.append({"epoch": step / 100, "grad_norm": 1.5, "learning_rate": 1e-4, "loss": loss(step), "step": step})
        if evaluated:
            entries.append({"epoch": step / 100, "eval_loss": validation(step), "step": step})
    entries.append({"epoch": 0.4, "step": POINTS, "train_loss": 3.0, "train_runtime": 60.0})
    path.write_text(json.dumps({"best_metric": None, "global_step": POINTS, "log_history": entries}, indent=2))


def megatron_reference(path: Path) -> None:
    """Megatron-LM's reference curves; the text "nan" where nothing was recorded."""
    values = {str(step): "nan" for step in range(1, 3)}
    values |= {str(step + 2): loss(step) for step, _ in steps()}  # type: ignore[misc]
    about = {"start_step": 1, "end_step": POINTS + 2, "step_interval": 1}
    path.write_text(json.dumps({"lm loss": about | {"values": values}, "num-zeros": about | {"values": values}}))


# --- binary ---------------------------------------------------------------------------------------------------------


def wandb_run(path: Path) -> None:
    """An offline run, put together with wandb's own messages."""
    from wandb.proto import wandb_internal_pb2 as messages

    content = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    for step, evaluated in steps():
        record = messages.Record()  # type: ignore[attr-defined]
        values = {"_step": step, "train/loss": loss(step)} | ({"val/loss": validation(step)} if evaluated else {})
        for name, value in values.items():
            record.history.item.add(nested_key=[name], value_json=json.dumps(value))
        data = record.SerializeToString()
        content += struct.pack("<IHB", zlib.crc32(data), len(data), 1) + data
    path.write_bytes(content)


def tensorboard_folder(path: Path) -> None:
    """A run of PyTorch's SummaryWriter."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(path))
    for step, evaluated in steps():
        values = {"train/loss": loss(step)} | ({"val/loss": validation(step)} if evaluated else {})
        for name, value in values.items():
            summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
            writer.add_event(Event(wall_time=step, step=step, summary=summary))
    writer.close()


def tensorboard_file(path: Path) -> None:
    """The event file alone."""
    folder = path.with_name(f"{path.name}.folder")
    tensorboard_folder(folder)
    next(folder.iterdir()).rename(path)
    folder.rmdir()


def mlflow_folder(path: Path) -> None:
    """MLflow's file store with one run."""
    run = path / "0" / "0123456789abcdef"
    (run / "metrics" / "train").mkdir(parents=True)
    (run / "meta.yaml").write_text("run_name: tidy\n")
    (run / "tags").mkdir()
    (run / "tags" / "mlflow.runName").write_text("tidy")
    (run / "metrics" / "train" / "loss").write_text("".join(f"1700000 {loss(s)} {s}\n" for s, _ in steps()))
    (run / "metrics" / "val_loss").write_text("".join(f"1700000 {validation(s)} {s}\n" for s, e in steps() if e))


def mlflow_database(path: Path) -> None:
    """MLflow's SQLite store with two runs."""
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE runs (run_uuid TEXT PRIMARY KEY, name TEXT, start_time INTEGER)")
        base.execute(
            "CREATE TABLE metrics "
            "(key TEXT, value REAL, timestamp INTEGER, run_uuid TEXT, step INTEGER, is_nan INTEGER)"
        )
        for run in ("one", "two"):
            base.execute("INSERT INTO runs VALUES (?, ?, 1)", (f"id-{run}", run))
            rows = [("train/loss", loss(s), s, f"id-{run}", s, 0) for s, _ in steps()]
            rows += [("val_loss", validation(s), s, f"id-{run}", s, 0) for s, evaluated in steps() if evaluated]
            base.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", rows)


def dvclive_folder(path: Path) -> None:
    """DVCLive's folder: a table a metric, and the last values."""
    tables = path / "plots" / "metrics"
    for name in ("train", "val"):
        (tables / name).mkdir(parents=True)
    (tables / "train" / "loss.tsv").write_text("step\tloss\n" + "".join(f"{s}\t{loss(s)}\n" for s, _ in steps()))
    (tables / "val" / "loss.tsv").write_text(
        "step\tloss\n" + "".join(f"{s}\t{validation(s)}\n" for s, e in steps() if e)
    )
    (path / "metrics.json").write_text(
        '{\n    "train": {\n        "loss": 2.0\n    },\n    "val": {\n        "loss": 2.2\n    }\n}\n'
    )


_NO_STEP, _BATCHES, _EPOCHS = "rows count", "batches count", "epochs count"

SAMPLES: tuple[Sample, ...] = (
    text_sample("nanogpt", ".log", consoles.nanogpt, format="console"),
    text_sample("modded_nanogpt", ".txt", consoles.modded_nanogpt, format="console"),
    text_sample("llm_c", ".log", consoles.llm_c, format="console"),
    text_sample("nanochat", ".log", consoles.nanochat, format="console"),
    text_sample("litgpt", ".log", consoles.litgpt, format="console", first=3.95, last=2.0),
    text_sample("torchtitan", ".log", consoles.torchtitan, format="console"),
    text_sample("megatron", ".log", consoles.megatron, format="console"),
    text_sample("gpt_neox", ".log", consoles.gpt_neox, format="console"),
    text_sample("fairseq", ".log", consoles.fairseq, format="console"),
    text_sample("algoperf", ".log", consoles.algoperf, format="console"),
    text_sample("wordlm", ".md", consoles.wordlm, format="console", note=_BATCHES),
    text_sample("mmengine_console", ".log", consoles.mmengine_console, format="console", evaluations=0, note=_BATCHES),
    text_sample("paddle", ".log", consoles.paddle, format="console", evaluations=0, note=_BATCHES),
    text_sample("trainer_console", ".log", consoles.trainer_console, format="console"),
    text_sample("slurm", ".out", consoles.slurm_of_a_newer_trainer, format="console", note=_NO_STEP),
    text_sample("progress_bar", ".log", consoles.progress_bar, format="console", evaluations=0, note=_BATCHES),
    text_sample(
        "epochs_in_words", ".log", consoles.epochs_in_words, format="console", evaluations=POINTS, note=_EPOCHS
    ),
    text_sample("keras_console", ".log", consoles.keras_console, format="console", evaluations=POINTS, note=_BATCHES),
    text_sample("sweep", ".txt", consoles.sweep, format="console", evaluations=0, runs=3, note=_EPOCHS),
    text_sample("detectron2_console", ".log", consoles.detectron2_console, format="console", evaluations=0),
    text_sample("llama_factory", ".jsonl", llama_factory, format="jsonl"),
    text_sample("mmengine", ".json", mmengine_json, format="jsonl", evaluations=0),
    text_sample("mmcv", ".json", mmcv_json, format="jsonl", evaluations=0),
    text_sample("detectron2", ".json", detectron2_json, format="jsonl"),
    text_sample("keras_history", ".json", keras_history, format="json", evaluations=POINTS, note=_NO_STEP),
    text_sample("lightning", ".csv", lightning_csv, format="csv"),
    text_sample("keras", ".csv", keras_csv, format="csv", evaluations=POINTS, note=_EPOCHS),
    text_sample("ultralytics", ".csv", ultralytics_csv, format="csv", evaluations=POINTS, note="is the sum of"),
    text_sample("train_loss", ".txt", bare_losses, format="numbers", evaluations=0),
    text_sample("losses", ".csv", metrics_without_a_step, format="csv", evaluations=0, note=_NO_STEP),
    Sample(name="trainer_state", file="trainer_state.json", write=trainer_state, format="trainer_state"),
    Sample(
        name="megatron_reference",
        file="golden.json",
        write=megatron_reference,
        format="megatron_reference",
        evaluations=0,
    ),
    Sample(name="wandb", file="run-abc.wandb", write=wandb_run, format="wandb"),
    Sample(name="tensorboard", file="logdir", write=tensorboard_folder, format="tensorboard"),
    Sample(name="event_file", file="events.out.tfevents.1", write=tensorboard_file, format="tensorboard"),
    Sample(name="mlflow", file="mlruns", write=mlflow_folder, format="mlflow"),
    Sample(name="mlflow_database", file="mlflow.db", write=mlflow_database, format="mlflow", runs=2),
    Sample(name="dvclive", file="dvclive", write=dvclive_folder, format="dvclive"),
)
"""All of them."""
