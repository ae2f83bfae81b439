"""Record the zoo: a healthy twin and its forks, each such group in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rmetric.registry import load_plugins
from rmetric.twins.group import Branch, record_group
from rmetric.twins.recording import fault_entry, log_config
from rmetric.twins.watching import close_hardware_watch
from studies.log_files import Finished, finished_recording
from studies.processes import each_from_fresh_processes, training_device
from studies.real_runs.disturbances import described
from studies.runner import Backend
from studies.zoo.distributed import record_processes
from studies.zoo.disturbances import DISTURBANCES
from studies.zoo.plan import RECORDING_VERSION, SEVERITY, ZooPlan, ZooSpec, groups_of
from studies.zoo.training import KINDS, KindRun


def record_all(
    plan: ZooPlan, todo: Sequence[ZooSpec], folder: Path, jobs: int, plugins: Sequence[Path]
) -> Iterator[list[Finished]]:
    """Record the runs that are still to do; yields each when its log is whole."""
    tasks = [(plan, group, folder, tuple(plugins)) for group in groups_of(todo)]
    alone = [task for task in tasks if KINDS[task[1][0].kind].processes == 1]
    together = [task for task in tasks if task not in alone]  # one at a time: each takes several cores itself
    for some, processes in (alone, jobs), (together, 1):
        if some:
            for finished in each_from_fresh_processes(record_here, some, processes):
                yield [finished]


def record_here(plan: ZooPlan, group: Sequence[ZooSpec], folder: Path, plugins: Sequence[Path]) -> Iterator[Finished]:
    """Record runs of one kind and seed in this process, in one thread; yields each when its log is whole."""
    load_plugins(plugins)
    training_device("cpu")
    kind, seed = KINDS[group[0].kind](), group[0].seed
    branches = [_branch(plan, spec) for spec in group]
    try:
        if kind.processes > 1:
            recorded = record_processes(kind, seed, plan, branches, folder)
        else:
            recorded = record_group(partial(KindRun, kind, seed, plan.steps), plan, branches, folder)
        yield from map(finished_recording, recorded)
    finally:
        close_hardware_watch()


def _branch(plan: ZooPlan, spec: ZooSpec) -> Branch:
    return Branch(
        name=spec.experiment_id,
        config=partial(config_of, plan, spec),
        onset=spec.onset,
        fault=spec.make_fault(),
        details=f"{spec.fault} begins",
        change=DISTURBANCES[spec.disturbance].disturb if spec.disturbance else None,
    )


def config_of(plan: ZooPlan, spec: ZooSpec, run: KindRun) -> dict[str, Any]:
    """``config`` of the log of a run."""
    kind = run.kind
    own = {
        "backend": "zoo",
        "experiment_id": spec.experiment_id,
        "model_type": spec.kind,
        "architecture": spec.kind,
        "optimizer": kind.optimizer,
        "family": kind.family,
        "kind": kind.why,
        "processes": kind.processes,
        "num_workers": kind.processes if kind.processes > 1 else kind.config.workers,
        "micro_batches": kind.config.workers,
        "seed": spec.seed,
        "repetition": spec.repetition,
        "total_training_steps": plan.steps,
        "log_every_n_steps": 1,
        "eval_every_n_steps": plan.eval_every,
        "batch_size": kind.config.rows,
        "learning_rate": kind.config.learning_rate,
        "fault_injection": fault_entry(spec.make_fault(), SEVERITY, spec.onset),
        "disturbance": described(DISTURBANCES[spec.disturbance], spec.onset) if spec.disturbance else None,
        "twin": spec.twin,
    }
    return log_config(run, own)


ZOO = Backend(
    name="zoo",
    verb="recording",
    execute=record_all,
    version=RECORDING_VERSION,
    fitted_files=(),
    libraries=("numpy", "torch", "transformers", "scikit-learn", "orjson"),
)
"""Recording of the zoo, for :func:`studies.runner.run_study`."""
