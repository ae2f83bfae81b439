"""Simulate the 720 runs: in batches, each run judged against its twin and written as a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rmetric.engines import parallel_map
from rmetric.files import write_atomically
from rmetric.registry import load_plugins
from rmetric.simulation import SIMULATION_VERSION, RunLog, RunSpec, run_batch
from rmetric.simulation.parameters import SHIPPED as PARAMETERS
from studies.log_files import Finished, finished_log
from studies.paper.parts import PARTS, simulate_parts
from studies.paper.plan import StudyPlan, batches_of
from studies.runner import Backend, StudyResult, run_study


def simulate_all(
    plan: StudyPlan, todo: Sequence[RunSpec], folder: Path, jobs: int, plugins: Sequence[Path]
) -> Iterator[list[Finished]]:
    """Simulate the runs that are still to do, in batches; yields those of a batch when it is done."""
    batches = batches_of(todo)
    work = partial(_run_batch_into, folder.resolve(), tuple(path.resolve() for path in plugins))
    yield from parallel_map(work, batches, min(jobs, len(batches)))


SIMULATION = Backend(
    name="simulation",
    verb="simulating",
    execute=simulate_all,
    version=SIMULATION_VERSION,
    fitted_files=(PARAMETERS,),
    libraries=("numpy", "scipy", "pandas", "river", "orjson"),
)
"""The simulator, for :func:`run_study`; a log of JSON lines a run."""
IN_PARTS = replace(SIMULATION, name="simulation in Parquet", execute=simulate_parts, form=PARTS)
"""The same with a Parquet file for every batch."""
SIMULATIONS = {"jsonl": SIMULATION, "parquet": IN_PARTS}
"""By the format of the logs."""


def simulate_study(plan: StudyPlan, folder: Path, **options: Any) -> StudyResult:
    """Simulate a study into a folder; options as of :func:`studies.runner.run_study`."""
    return run_study(plan, folder, backend=SIMULATION, **options)


def _run_batch_into(folder: Path, plugins: Sequence[Path], specs: Sequence[RunSpec]) -> list[Finished]:
    load_plugins(plugins)
    return [_written(folder, log) for log in run_batch(specs)]


def _written(folder: Path, log: RunLog) -> Finished:
    content = log.content
    write_atomically(folder / f"{log.name}.jsonl", content)
    return finished_log(log.name, content, log.records, log.outcome.kind, log.outcome.failure_step)
