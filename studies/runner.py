"""The 720-run study: which runs it has, and how they are run, resumed and accounted for."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from joblib import Parallel, delayed
from tqdm import tqdm

from rmetric import __version__
from rmetric.architectures import ARCHITECTURES
from rmetric.errors import UserError
from rmetric.evaluation.ground_truth import Outcome, excess, judge_runs
from rmetric.faults import FAULTS, NO_FAULT, SEVERITIES
from rmetric.files import write_atomically
from rmetric.log_writer import SCHEMA_VERSION
from rmetric.records import TERMINAL_EVENTS
from rmetric.registry import load_plugin
from rmetric.simulation import SIMULATION_VERSION, RunLog, RunSpec, Traces, TrainingSimulator, write_logs
from rmetric.simulation.parameters import SHIPPED as PARAMETERS
from rmetric.streams import stable_hash
from rmetric.versions import content_checksums

COMMON_FAULTS = (
    "LR_SPIKE",
    "GRADIENT_EXPLOSION",
    "DATA_CORRUPTION",
    "NODE_FAILURE",
    "NETWORK_DEGRADATION",
    "SILENT_DATA_CORRUPTION",
)
"""Faults that every architecture of the study gets; each has two more of its own."""

CONTROLS_PER_REPETITION = 6
BATCH_RUNS = 60
"""Runs simulated together: enough to be fast, few enough to keep memory constant."""
MANIFEST = "manifest.json"


class Spec(Protocol):
    """One run of a study, as the runner sees it."""

    @property
    def seed(self) -> int: ...
    @property
    def experiment_id(self) -> str: ...


class Plan(Protocol):
    """What is to be run, a frozen dataclass; simulated or trained."""

    def specs(self) -> Sequence[Any]: ...


@dataclass(frozen=True, kw_only=True)
class Backend:
    """How the runs of a study come about."""

    name: str
    verb: str
    """For the progress bar."""
    execute: Callable[[Any, Sequence[Any], Path, int, Sequence[Path]], Iterator[list[Finished]]]
    """Called with plan, specs, folder, processes and plugins; writes each log whole and yields what it has written."""
    version: int
    """Raised when the same plan gives other logs (:mod:`rmetric.versions`)."""
    fitted_files: tuple[Path, ...]
    """JSON files of fitted numbers that the logs depend on."""
    libraries: tuple[str, ...]
    """Packages that the logs depend on."""


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """What is to be run. Two plans that are equal give the same bytes."""

    seed: int = 0
    repetitions: int = 8
    steps: int = 5000
    log_every: int = 10
    architectures: tuple[str, ...] = tuple(ARCHITECTURES)
    faults: tuple[str, ...] = ()
    """Faults instead of those of the matrix; empty: the matrix."""
    severities: tuple[str, ...] = SEVERITIES
    controls: int = 8 * CONTROLS_PER_REPETITION
    """Control runs of each architecture."""

    @classmethod
    def smoke(cls, **changes: Any) -> StudyPlan:
        """36 runs: each architecture, each of its faults once at medium severity, four controls."""
        return cls(**{"repetitions": 1, "severities": ("medium",), "controls": 4, **changes})

    def only(self, architectures: Sequence[str], faults: Sequence[str]) -> StudyPlan:
        """The same plan for some architectures, and with other faults than the matrix has unless there are none."""
        return replace(self, architectures=tuple(architectures), faults=tuple(faults))

    def specs(self) -> list[RunSpec]:
        """All runs in order: architecture, fault, severity, repetition; controls last in each architecture."""
        if not self.architectures:
            raise UserError("a study needs at least one architecture")
        specs = []
        for architecture in self.architectures:
            for fault in self._faults_of(architecture):
                for severity in self.severities:
                    specs += [
                        self._spec(architecture, fault, severity, repetition + 1)
                        for repetition in range(self.repetitions)
                    ]
            specs += [self._spec(architecture, NO_FAULT, "medium", number + 1) for number in range(self.controls)]
        return [replace(spec, number=number) for number, spec in enumerate(specs)]

    def _faults_of(self, architecture: str) -> Iterable[str]:
        profile = ARCHITECTURES[architecture]
        if not self.faults:
            return (*COMMON_FAULTS, *profile.native_faults)
        fitting = [
            fault
            for fault in self.faults
            if profile.experts or not any(FAULTS[part.strip()].needs_experts for part in fault.split("+"))
        ]
        if not fitting and len(self.architectures) == 1:
            raise UserError(f"{', '.join(self.faults)} needs a mixture-of-experts model; add gpt-4-moe")
        return fitting

    def _spec(self, architecture: str, fault: str, severity: str, repetition: int) -> RunSpec:
        # The seed hangs on the run's own name, so that leaving out other runs, or adding a fault, does not change it.
        key = f"{self.seed}/{architecture}/{fault}/{'' if fault == NO_FAULT else severity}/{repetition}"
        return RunSpec(
            architecture=architecture,
            fault=fault,
            severity=severity,
            seed=stable_hash(key),
            steps=self.steps,
            log_every=self.log_every,
            repetition=repetition,
        )


@dataclass(frozen=True)
class Finished:
    """One finished log, as the manifest lists it."""

    name: str
    sha256: str
    bytes: int
    records: int
    outcome: str
    failure_step: int | None

    @classmethod
    def of(cls, log: RunLog) -> Finished:
        """From a log that was just made."""
        digest = hashlib.sha256(log.content).hexdigest()
        return cls(
            log.name, digest, len(log.content), log.records, log.outcome.kind, log.outcome.failure_step
        )  # fmt: skip


@dataclass(frozen=True)
class StudyResult:
    """What a call of :func:`run_study` did."""

    folder: Path
    runs: int
    """Runs of the study."""
    made: int
    """Runs that this call simulated; the others were found finished."""
    finished: list[Finished]
    seconds: float


def run_batch(specs: Sequence[RunSpec]) -> list[RunLog]:
    """Simulate runs of one architecture, judge each against its twin, and write their logs (in memory)."""
    traces = TrainingSimulator().simulate(specs)
    return write_logs(traces, judge_traces(traces))


def judge_traces(traces: Traces) -> list[Outcome]:
    """How each run of a batch ended, by the rule of the ground truth."""
    steps = np.arange(1, traces.held_out.shape[1] + 1)
    return judge_runs(
        excess(traces.held_out, traces.twin_held_out),
        steps,
        non_finite_step=traces.non_finite_step,
        worker_lost_step=traces.worker_lost_step,
        faulty=[not spec.is_control for spec in traces.specs],
    )


def simulate_all(
    plan: StudyPlan, todo: Sequence[RunSpec], folder: Path, jobs: int, plugins: Sequence[Path]
) -> Iterator[list[Finished]]:
    """Simulate the runs that are still to do, in batches; yields those of a batch when it is done."""
    batches = _batches(todo)
    work = (delayed(_run_batch_into)(batch, folder, tuple(plugins)) for batch in batches)
    yield from Parallel(n_jobs=min(jobs, max(1, len(batches))), return_as="generator_unordered")(work)


SIMULATION = Backend(
    name="simulation",
    verb="simulating",
    execute=simulate_all,
    version=SIMULATION_VERSION,
    fitted_files=(PARAMETERS,),
    libraries=("numpy", "scipy", "pandas", "river", "orjson", "joblib"),
)
"""The simulator, for :func:`run_study`."""


def run_study(
    plan: Plan,
    folder: Path,
    *,
    backend: Backend = SIMULATION,
    jobs: int = 1,
    resume: bool = False,
    overwrite: bool = False,
    plugins: Sequence[Path] = (),
) -> StudyResult:
    """Run a study into a folder.

    A log appears under its name only when it is complete. The manifest is written when the study begins and, with a
    checksum of every log, when it ends.

    Parameters
    ----------
    plan
        What to run.
    folder
        Existing folder for the logs and ``manifest.json``.
    backend
        Simulation, or real training (:data:`studies.real_runs.run.TORCH`).
    jobs
        Number of processes.
    resume
        Go on with the study that is in the folder: logs that are there and whole are kept.
    overwrite
        Remove the study that is in the folder first (its logs and manifest, nothing else).
    plugins
        Python files that register the user's own faults or detectors.

    Raises
    ------
    UserError
        If there is a study in the folder and neither flag is given, or if it is a different one.
    """
    started = time.perf_counter()
    specs = plan.specs()
    if not specs:
        raise UserError("this study has no runs; give at least one repetition or control")
    identity = _identity(plan, backend, plugins)
    kept = _prepare(folder, identity, specs, resume=resume, overwrite=overwrite)
    todo = [spec for spec in specs if spec.experiment_id not in kept]
    if todo:
        _write_manifest(folder, identity, specs, {}, started)
    done = len(specs) - len(todo)
    with tqdm(total=len(specs), initial=done, unit="run", disable=None, desc=backend.verb) as bar:
        for made in backend.execute(plan, todo, folder, jobs, plugins) if todo else ():
            kept.update({item.name: item for item in made})
            bar.update(len(made))
    if todo:
        _write_manifest(folder, identity, specs, kept, started)
    finished = [kept[spec.experiment_id] for spec in specs]
    return StudyResult(folder, len(specs), len(todo), finished, time.perf_counter() - started)


def _batches(specs: Sequence[RunSpec]) -> list[list[RunSpec]]:
    batches: list[list[RunSpec]] = []
    for spec in specs:
        if not batches or len(batches[-1]) == BATCH_RUNS or batches[-1][0].architecture != spec.architecture:
            batches.append([])
        batches[-1].append(spec)
    return batches


def _run_batch_into(specs: Sequence[RunSpec], folder: Path, plugins: Sequence[Path]) -> list[Finished]:
    for plugin in plugins:
        load_plugin(plugin)
    logs = run_batch(specs)
    for log in logs:
        write_atomically(folder / f"{log.name}.jsonl", log.content)
    return [Finished.of(log) for log in logs]


# ---------------------------------------------------------------------------------------------------------------------
# What is in the folder already
# ---------------------------------------------------------------------------------------------------------------------


def _identity(plan: Plan, backend: Backend, plugins: Sequence[Path]) -> dict[str, Any]:
    """All that the bytes of the logs depend on."""
    return {
        "plan": json.loads(json.dumps(asdict(plan))),  # type: ignore[call-overload]
        "package_version": __version__,
        "schema_version": SCHEMA_VERSION,
        "backend_version": backend.version,
        "backend": backend.name,
        "fitted": content_checksums(backend.fitted_files),
        "libraries": {name: version(name) for name in backend.libraries},
        "plugins": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in plugins},
    }


def _prepare(
    folder: Path, identity: dict[str, Any], specs: Sequence[Spec], *, resume: bool, overwrite: bool
) -> dict[str, Finished]:
    """Clear or check the folder; returns the finished logs to keep."""
    manifest = _read_manifest(folder)
    present = sorted(path.stem for path in folder.glob("run_*.jsonl"))
    if overwrite:
        for name in {*present} & ({*(manifest or {}).get("runs", {})} | {spec.experiment_id for spec in specs}):
            (folder / f"{name}.jsonl").unlink()
        (folder / MANIFEST).unlink(missing_ok=True)
        return {}
    if manifest is None and not present:
        return {}
    if not resume:
        raise UserError(f"{folder} already holds a study; --resume goes on with it, --overwrite replaces it")
    if manifest is None:
        raise UserError(f"{folder} holds logs without {MANIFEST}; choose another --out, or use --overwrite")
    if manifest.get("study") != identity:
        different = _first_difference(manifest.get("study") or {}, identity)
        raise UserError(f"{folder} holds another study ({different}); choose another --out, or use --overwrite")
    for leftover in folder.glob(".run_*.part"):
        leftover.unlink(missing_ok=True)
    listed = manifest.get("runs", {})
    found = (_finished(folder, spec, listed.get(spec.experiment_id)) for spec in specs)
    return {item.name: item for item in found if item is not None}


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _first_difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    for key, value in wanted.items():
        there = found.get(key)
        if there == value:
            continue
        if key == "backend_version":
            return f"made by version {there or 'unknown'} of the {wanted['backend']}, not {value}"
        if isinstance(value, dict) and isinstance(there, dict):
            for name in {**value, **there}:
                if value.get(name) != there.get(name):
                    return f"its {name} is {there.get(name)}, not {value.get(name)}"
        return f"its {key} is {there}, not {value}"
    return "its manifest is damaged"


def _finished(folder: Path, spec: Spec, listed: dict[str, Any] | None) -> Finished | None:
    """The log of a run if it is there and whole, else ``None``."""
    try:
        content = (folder / f"{spec.experiment_id}.jsonl").read_bytes()
    except FileNotFoundError:
        return None
    digest = hashlib.sha256(content).hexdigest()
    if listed:
        return Finished(spec.experiment_id, **listed) if listed["sha256"] == digest else None
    lines = content.splitlines()
    try:
        config, end = json.loads(lines[0])["config"], json.loads(lines[-1])
    except (IndexError, KeyError, ValueError):
        return None
    if config.get("seed") != spec.seed or end.get("event") not in TERMINAL_EVENTS:
        return None
    failed = end["event"] == "EXPERIMENT_FAILURE"
    records = sum(line.startswith(b'{"event":"METRICS"') for line in lines)
    outcome = "failed" if failed else end["outcome"]
    return Finished(spec.experiment_id, digest, len(content), records, outcome, end["step"] if failed else None)


def _write_manifest(
    folder: Path, identity: dict[str, Any], specs: Sequence[Spec], finished: dict[str, Finished], started: float
) -> None:
    runs = {
        spec.experiment_id: {key: value for key, value in asdict(item).items() if key != "name"} if item else None
        for spec in specs
        for item in [finished.get(spec.experiment_id)]
    }
    manifest = {
        "study": identity,
        "complete": all(runs.values()),
        "provenance": {
            "written_utc": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.perf_counter() - started, 2),
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
            "commit": _commit(),
        },
        "runs": runs,
    }
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1).encode() + b"\n")


def _commit() -> str | None:
    """Commit of the working tree that this package lies in, if it lies in one."""
    here = Path(__file__).resolve().parent
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return asked.stdout.strip() or None
