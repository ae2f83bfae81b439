"""Simulate the 720 runs: in batches, each run judged against its twin and written as a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from rmetric.files import write_atomically
from rmetric.registry import load_plugin
from rmetric.simulation import SIMULATION_VERSION, RunSpec, run_batch
from rmetric.simulation.parameters import SHIPPED as PARAMETERS
from studies.paper.plan import StudyPlan
from studies.runner import Backend, Finished, StudyResult, finished_log, run_study

BATCH_RUNS = 60
"""Runs simulated together: enough to be fast, few enough to keep memory constant."""


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


def simulate_study(plan: StudyPlan, folder: Path, **options: Any) -> StudyResult:
    """Simulate a study into a folder; options as of :func:`studies.runner.run_study`."""
    return run_study(plan, folder, backend=SIMULATION, **options)


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
    return [
        finished_log(log.name, log.content, log.records, log.outcome.kind, log.outcome.failure_step) for log in logs
    ]
