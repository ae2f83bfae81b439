"""Time and memory that the replay of logs takes.

    python benchmarks/replay.py                          # about a minute
    python benchmarks/replay.py --records 2000000        # about 1 GB

Prints one JSON object. Times are wall clock, from opening the log to the finished CSV and summary; importing and
plotting are not in them. Memory is the largest resident set of a fresh process that replays one log and nothing else.
``folder`` is what a study is: 720 short logs, replayed from the shell, with all that is imported and started for it.
So are logs of other programs: a line of JSON, a row or a line of text a record, and a table of 40 runs.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from rmetric.cli import script
from rmetric.compiled import PAYS_FROM
from rmetric.engines.processes import pool_for
from rmetric.log_writer import encode_event, encode_metrics, to_log_precision
from rmetric.metric import RMetric
from rmetric.records import NO_FAULT, held
from rmetric.replay.report import replays_to_folder
from rmetric.signals import HardwareFailureRate, ValidationDrift

BLOCK = 20_000
REFERENCE = 100_000
"""Records of the log whose time is reported."""


def write_log(path: Path, records: int) -> None:
    """A log with every field that a simulated run writes, a record every 10 steps, in blocks of bounded size."""
    with open(path, "wb") as file:
        file.write(encode_event({"event": "EXPERIMENT_START", "config": {"fault_injection": {"type": NO_FAULT}}}))
        metric, drift, rate = RMetric.paper(), ValidationDrift(), HardwareFailureRate()
        for start in range(0, records, BLOCK):
            rng = np.random.default_rng(start)
            n = min(BLOCK, records - start)
            step = (np.arange(start, start + n) + 1) * 10
            validation = np.full(n, np.nan)
            validation[::10] = to_log_precision(2.0 + 0.01 * rng.normal(size=len(validation[::10])))
            delta_l = np.full(n, np.nan)
            delta_l[::10] = [drift.update(loss) for loss in validation[::10].tolist()]
            raw: dict[str, np.ndarray] = {
                "training_loss": 2.0 + 0.02 * rng.normal(size=n),
                "validation_loss": held(validation),
                "learning_rate": np.full(n, 1e-4),
                "grad_norm": np.exp(0.2 * rng.normal(size=n)),
                "update_rms": 1e-5 * np.exp(0.2 * rng.normal(size=n)),
                "step_time_s": 5.0 + 0.1 * rng.random(n),
                "step_time_max_s": 6.0 + 0.1 * rng.random(n),
                "lambda": np.full(n, rate.value),
                "sigma_sq": 0.01 * np.exp(rng.normal(size=n)),
                "delta_l": held(to_log_precision(delta_l)),
            }
            raw = {name: to_log_precision(values) for name, values in raw.items()}
            r = metric.extend(raw["lambda"], raw["sigma_sq"], raw["delta_l"])
            raw |= {name: np.asarray(values) for name, values in r._asdict().items() if name != "r"}
            floats = {name: to_log_precision(values) for name, values in {**raw, "r_metric": np.asarray(r.r)}.items()}
            states: dict[str, Sequence[Any]] = {"alerts": [{"r_metric": 300}] * n, "is_nan": [False] * n}
            states["active_workers"] = [list(range(8))] * n
            file.write(encode_metrics(step, floats, states))
            time_s = float(step[-1]) * 5.0
            rate.update(time_s)
            file.write(encode_event({"event": "HARDWARE_EVENT", "step": int(step[-1]), "time_s": time_s}))
        file.write(encode_event({"event": "EXPERIMENT_SUCCESS", "step": records * 10}))


def measure(log: Path, out: Path) -> tuple[tuple[int, bool], float, float]:
    """Replay in this process: records and whether all is exact, seconds, and the peak resident set (MiB)."""
    warm_up = out / "warm_up.jsonl"
    write_log(warm_up, PAYS_FROM)
    [*replays_to_folder(warm_up, {None: "warm_up"}, out)]  # imports, also those of long logs
    started = time.perf_counter()
    (replay,) = replays_to_folder(log, {None: "replay"}, out)
    seconds = time.perf_counter() - started
    exact = replay.agreement["r_metric"].max_difference == 0.0
    return (replay.records, exact), seconds, peak_rss_mib()


def peak_rss_mib() -> float:
    """Largest resident set of this process; where there is no ``/proc``, that of its parent may be in it."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) / 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(records: int, repeats: int) -> dict[str, float]:
    """The best of several replays, each in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        write_log(log, records)
        results = []
        for _ in repeat(None, repeats):
            with pool_for(measure, 1) as process:
                results.append(process.submit(measure, log, Path(folder)).result())
        (replayed, exact), seconds, _ = min(results, key=lambda result: result[1])
        assert replayed == records and exact, "the replay does not give what the log holds"
        return {
            "records": records,
            "log_mb": round(log.stat().st_size / 1e6, 1),
            "seconds": round(seconds, 3),
            "records_per_s": round(records / seconds),
            "peak_rss_mib": round(max(peak for _, _, peak in results), 1),
        }


def replayed_from_the_shell(logs: Path, count: int, records: int) -> dict[str, float]:
    """Replay as a user does, without plots: so many runs with so many records in all."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "rmetric", "replay", str(logs), "--no-plot", "--out", out]
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        assert len([*Path(out).glob("*.summary.json")]) == count, "some runs were not replayed"
    return {"logs": count, "records": records, "seconds": round(seconds, 2), "records_per_s": round(records / seconds)}


def measured_folder(logs: int, records: int) -> dict[str, float]:
    """Short logs, as a study has them."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(logs):
            write_log(Path(folder) / f"log_{number}.jsonl", records)
        return replayed_from_the_shell(Path(folder), logs, logs * records)


def measured_others(records: int, runs: int) -> dict[str, dict[str, float]]:
    """Logs of other programs, each of so many records with three values; the last one of so many runs."""
    rng = np.random.default_rng(0)
    losses, norms = 3.0 / (1.0 + np.arange(records) / 300.0) ** 0.3, np.exp(0.2 * rng.normal(size=records))
    rows = [*zip(range(records), losses + 0.02 * rng.normal(size=records), norms, strict=True)]
    each = records // runs
    written = {
        "lines.jsonl": (json.dumps({"step": n, "loss": loss, "grad_norm": norm, "lr": 1e-4}) for n, loss, norm in rows),
        "table.csv": ("step,loss,grad_norm,lr", *(f"{n},{loss:.4f},{norm:.4f},1e-4" for n, loss, norm in rows)),
        "console.log": (f"step {n}/{records} loss {loss:.4f} grad_norm {norm:.4f} lr 1e-4" for n, loss, norm in rows),
        "sweep.csv": ("run,step,loss,grad_norm,lr",
                      *(f"{n // each},{n % each},{loss:.4f},{norm:.4f},1e-4" for n, loss, norm in rows)),
    }  # fmt: skip
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in written.items():
            log = Path(folder) / name
            log.write_text("\n".join(lines) + "\n")
            found[name] = replayed_from_the_shell(log, runs if name == "sweep.csv" else 1, records)
    return found


@script
def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--records", type=int, default=600_000, help="records of the large log (default: 600000, 0.3 GB)"
    )
    records = parser.parse_args(argv).records
    reference, small, large = measured(REFERENCE, 5), measured(max(records // 10, 1), 1), measured(records, 1)
    growth = round(large["peak_rss_mib"] / small["peak_rss_mib"], 3)
    found = {"reference": reference, "small": small, "large": large, "memory_growth": growth}
    found |= {"folder": measured_folder(720, 418), "of_other_programs": measured_others(40_000, 40)}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    sys.exit(main())
