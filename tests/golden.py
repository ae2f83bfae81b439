"""The output of every version in :mod:`rmetric.versions`, kept in ``tests/data/golden.json``.

    python -m tests.golden              # compare, as tests/test_golden.py does
    python -m tests.golden --update     # after a version was raised: keep its new output

Scores and losses are kept as fingerprints that a change of any record moves, and compared with a tolerance, for
another processor may add in another order; logs of the simulator are the same to the byte everywhere.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmetric.detectors import DETECTORS, make_detector
from rmetric.detectors.drift import with_drift
from rmetric.evaluation.scoring import SCORING_VERSION
from rmetric.log_reader import read_log
from rmetric.log_writer import SCHEMA_VERSION
from rmetric.measurements import OBSERVABLE
from rmetric.records import Observations
from rmetric.simulation import SIMULATION_VERSION
from rmetric.streams import stable_hash
from rmetric.versions import content_checksums
from studies.paper.plan import StudyPlan
from studies.paper.run import SIMULATION

HERE = Path(__file__).resolve().parent
FILE = HERE / "data" / "golden.json"
SAMPLE = HERE.parent / "logs_FULL_METRIC" / "sample"
LOGS = {
    "simulated": SAMPLE / "run_016_llama-3-8b_lr_spike_high_rep1.jsonl",
    "real": HERE / "data" / "real_runs" / "real_seed0_10_lr_spike_lr_30_20.jsonl",
}
OUR_DETECTORS = [name for name, kind in DETECTORS.items() if kind.__module__.startswith("rmetric.") and not kind.extra]
SIMULATED, TRAINED = "simulated study", "real study"
NAMES = [SIMULATED, TRAINED, *OUR_DETECTORS]
TOLERANCE = {TRAINED: 1e-3}
"""Relative; 1e-7 for all others. Sums of a training come out otherwise with another number of threads."""

Entry = dict[str, Any]
"""``version``: what identifies the output; ``output``: numbers and texts; ``text``: what a model was trained on."""


def entry_of(name: str) -> Entry:
    """Version and output of one of :data:`NAMES`, worked out now."""
    make: dict[str, Callable[[], Entry]] = {SIMULATED: simulated_study, TRAINED: real_study}
    return make.get(name, partial(scores_of, name))()


def simulated_study() -> Entry:
    """The plan and the committed sample, which ``tests/test_backtest.py`` simulates anew."""
    logs = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SAMPLE.glob("*.jsonl"))))
    return {
        "version": [SIMULATION_VERSION, SCHEMA_VERSION, content_checksums(SIMULATION.fitted_files)],
        "output": {"plan": plan_checksum(StudyPlan().specs()), "sample": logs.hexdigest()},
    }


def real_study() -> Entry:
    """The plans, and 24 steps of a tiny model and of a fork whose gradient explodes."""
    from rmetric.live.corpus import standard_library
    from studies.real_runs.plan import TRAINING_VERSION, RealSpec, RealStudyPlan
    from studies.real_runs.run import train_group

    plan = RealStudyPlan(steps=24, rows=4, length=24, workers=2, eval_every=6, device="cpu")
    twin = RealSpec(model="tiny-llama", optimizer="adamw", seed=1, onset=None, repetition=1)
    fork = replace(twin, fault="GRADIENT_EXPLOSION", severity="low", onset=15, number=1)
    with tempfile.TemporaryDirectory() as folder:
        names = [finished.name for finished in train_group(plan, [twin, fork], Path(folder))]
        runs = [read_log(Path(folder) / f"{name}.jsonl") for name in names]
    output: dict[str, Any] = {
        "plan": plan_checksum(RealStudyPlan().specs()),
        "transfer": plan_checksum(RealStudyPlan.transfer().specs()),
    }
    for run in runs:
        for name in ("training_loss", "validation_loss", "grad_norm", "sigma_sq", "update_rms"):
            output[f"{run.name}, {name}"] = fingerprint(run.observations[name])
    return {"version": [TRAINING_VERSION, SCHEMA_VERSION], "output": output, "text": standard_library().name}


def scores_of(name: str) -> Entry:
    """Scores of a detector on a simulated run, a real run, and noise in all measurements with gaps and spikes."""
    detector = make_detector(name)
    records = {key: with_drift(read_log(path).observations) for key, path in LOGS.items()} | {"noise": noise()}
    version = [detector.version, SCORING_VERSION, SCHEMA_VERSION, content_checksums(detector.fitted_files)]
    return {
        "version": version,
        "output": {key: fingerprint(detector.score_run(part)) for key, part in records.items()},
    }


def noise() -> Observations:
    """400 records of all that can be observed, with gaps, a spike, hardware events and a broken step."""
    columns = {}
    for name in OBSERVABLE:
        rng = np.random.default_rng(stable_hash(name))
        values = np.exp(rng.normal(0.0, 0.2, 400))
        values[rng.integers(400, size=8)] = np.nan
        values[300:305] *= 30.0
        columns[name] = values
    columns["training_loss"][390] = np.inf
    for name in ("non_finite_count", "hardware_events", "event_worker"):
        columns[name] = np.zeros(400)
    columns["hardware_events"][[200, 204, 205, 206]] = 1.0
    columns["non_finite_count"][380] = 3.0
    return Observations(np.arange(1, 401), columns, np.ones(400, dtype=bool))


def fingerprint(values: NDArray[np.float64]) -> list[float]:
    """Numbers of NaN and of infinities, and two sums of the others (compressed) that a change of any of them moves."""
    finite = np.isfinite(values)
    small = np.arcsinh(np.where(finite, values, 0.0))
    sums = (float(np.abs(small).sum()), float((small * np.cos(np.arange(len(values)))).sum()))
    return [int(np.isnan(values).sum()), int(np.isinf(values).sum()), *(float(f"{total:.12g}") for total in sums)]


def plan_checksum(specs: Iterable[Any]) -> str:
    """Checksum of all runs of a plan."""
    return hashlib.sha256(json.dumps([asdict(spec) for spec in specs], sort_keys=True).encode()).hexdigest()


def problem(name: str, now: Entry, kept: Entry | None) -> str:
    """What is wrong with the kept output, and what to do; empty if it is that of now."""
    if kept is None or now["version"] != kept["version"]:
        return f"the version of {name} is new: python -m tests.golden --update keeps its output"
    changed = [key for key in now["output"] if not _same(now["output"][key], kept["output"].get(key), name)]
    if not changed:
        return ""
    version = {SIMULATED: "SIMULATION_VERSION", TRAINED: "TRAINING_VERSION"}.get(name, "the detector's `version`")
    return (
        f"the output of {name} has changed ({', '.join(changed)}). If that is meant, raise {version} "
        "(rmetric/versions.py says which is for what) and run python -m tests.golden --update"
    )


def _same(now: Any, kept: Any, name: str) -> bool:
    if isinstance(now, str) or kept is None:
        return bool(now == kept)
    return bool(np.allclose(now, kept, rtol=TOLERANCE.get(name, 1e-7), atol=1e-9))


def kept_entries() -> dict[str, Entry]:
    """What the file holds."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def main(argv: list[str]) -> int:
    """Compare, or keep the outputs of versions that are new; an output is never replaced under its own version."""
    kept, found = kept_entries(), {name: json.loads(json.dumps(entry_of(name))) for name in NAMES}
    if argv == ["--update"]:
        renewed = {name: kept.get(name, {}).get("version") != now["version"] for name, now in found.items()}
        kept = {name: now if renewed[name] else kept[name] for name, now in found.items()}
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in kept.items())
        FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    problems = [text for name, now in found.items() if (text := problem(name, now, kept.get(name)))]
    print("\n".join(problems) or f"{len(found)} outputs are those of their versions")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
