"""Sets of runs that the benchmark scores: strangers', the zoo's, the study's own; each with its clock and its groups.

On the clock of a stranger's run one record is one step, since a record may stand for 1 or 500 of them: an alarm is an
episode after 50 quiet *records*, leads and false alarms are in records. All other sets count steps.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmetric.errors import UserError
from rmetric.evaluation.protocols import HEALTHY, Timeline
from rmetric.evaluation.split import halves
from rmetric.evaluation.studies import Study, load_study, with_drift
from rmetric.evaluation.truth import Truth
from rmetric.files import checksum
from rmetric.records import Observations, Run
from studies.abroad.labels import AHEAD, Label, label_of
from studies.abroad.strangers import read_strangers

WORKLOADS = ("criteo1tb", "fastmri", "imagenet_resnet", "imagenet_vit", "librispeech_conformer",
             "librispeech_deepspeech", "ogbg", "wmt")  # fmt: skip
UNFITTED_ZOOS = ("zoo_2", "zoo_3", "zoo_4", "loops", "agents")
"""Zoos to no kind of which anything may be fitted, and the loops and agents of others."""
NOT_FOR_FITTING = (*UNFITTED_ZOOS, "bugs_2", "real_runs_fresh", "real_runs_transfer")
"""Beginnings of the names of all sets that nothing may be fitted to."""
FITTED_CELLS = {(model, "adamw") for model in ("tiny-llama", "tiny-mistral", "tiny-moe")}
"""Models and optimizers of ``real_runs``: those of ``studies.real_runs.plan.MATRIX``, which would need torch."""
SEEDS_A_PLAN = 1_000_000
"""Of the same trainings with another seed of the plan, which are fresh, the runs have seeds from here on."""
PLANNED, REWARD = "planned_changes", "reward"
"""What only the user can tell a monitor: where the training was changed on purpose, and what an agent has gained."""
LEFT_OUT = {PLANNED: "nothing announced", REWARD: "no rewards"}
"""Measurement that the user tells → what is said of runs scored as if it had not been told."""


@dataclass(frozen=True)
class Group:
    """Rows of one line of the benchmark."""

    level: str
    """``source``, ``half``, ``workload``, ``optimizer``, ``kind``, ``bug`` or ``own``."""
    name: str
    runs: NDArray[np.bool_]
    """Which runs of the set belong to it, shape (runs,)."""


@dataclass(frozen=True)
class RunSet:
    """A set of runs with its truth."""

    name: str
    study: Study
    timeline: Timeline
    groups: Sequence[Group]
    labels: Sequence[Label] = field(default_factory=tuple)
    """Of strangers' runs, one a run."""


def strangers(folder: Path, name: str) -> RunSet:
    """One source of strangers' runs, from the folder or, where it is published, from its data set."""
    if folder.suffix == ".parquet":
        study = load_study(folder)
    else:
        runs = read_strangers(folder, [name])
        for run in runs:
            run.observations = with_drift(run.observations)
        study = Study(folder, runs, checksums=[checksum(folder / f"{name}.parquet")])
    labels = [label_of(run) for run in study.runs]
    groups = [Group("source", name, np.ones(len(study.runs), bool))]
    if name == "algoperf":
        groups += _groups("workload", study.runs, lambda run: workload(run.model_type))
        groups += _groups("optimizer", study.runs, lambda run: str(run.config.get("optimizer", "")))
    return RunSet(name, study, stranger_timeline(study.runs, labels), groups, labels)


def zoo(place: Path) -> RunSet:
    """Runs of the zoo: a line a kind of healthy runs, disturbed ones included, a line a bug, one for all other kinds.

    The other kinds are those that nothing may be fitted to; kinds that announce what they change have a line as well.
    """
    study, name = load_study(place), set_name(place)
    faulty = np.array([not run.is_control for run in study.runs])
    kinds = [
        replace(group, name=f"{name}: {group.name}", runs=group.runs & ~faulty)
        for group in _groups("kind", study.runs, lambda run: run.model_type)
    ]
    bugs = _groups("bug", study.runs, lambda run: "" if run.is_control else run.fault)
    groups = [Group("source", name, np.ones(len(study.runs), bool))]
    if name not in UNFITTED_ZOOS:
        others = np.array([not may_be_fitted_to(run.model_type) for run in study.runs])
        groups.append(Group("half", f"{name}, kinds not fitted to", others))
    announce = np.array([run.observations.has(PLANNED) for run in study.runs])
    if announce.any():
        groups.append(Group("half", f"{name}, kinds that announce", announce))
    return RunSet(name, study, Timeline.of(study.runs), [*groups, *kinds, *bugs])


def set_name(place: Path) -> str:
    """Name of the set in a file, or in a folder of logs.

    >>> set_name(Path("data/zoo_3.parquet")), set_name(Path("logs_ZOO_3")), set_name(Path("logs_v1.5"))
    ('zoo_3', 'zoo_3', 'v1.5')
    """
    named = place if place.name.strip(".") else place.resolve()  # a link keeps the name that its user gave it
    name = named.name.removesuffix(".parquet")
    return name.removeprefix("logs_").lower() if name.startswith("logs_") else name


def untold(source: RunSet) -> Iterator[RunSet]:
    """A set, and parts of it, as if its users had not told what :data:`LEFT_OUT` names; of rewards, each kind too."""
    for told, said in LEFT_OUT.items():
        if any(run.observations.has(told) for run in source.study.runs):
            study = replace(source.study, runs=[_without(run, told) for run in source.study.runs])
            levels = ("source", "half", "kind") if told == REWARD else ("source", "half")
            groups = [group for group in source.groups if group.level in levels]
            renamed = [replace(group, name=f"{group.name}, {said}") for group in groups]
            yield RunSet(f"{source.name}, {said}", study, source.timeline, renamed)


def _without(run: Run, measurement: str) -> Run:
    seen = run.observations
    columns = {name: column for name, column in seen.columns.items() if name != measurement}
    return replace(run, observations=Observations(seen.step, columns, seen.evaluated))


def may_be_fitted_to(kind: str) -> bool:
    """Whether a kind of the first zoo is in the half that a detector may be fitted to: by a checksum of its name."""
    return zlib.crc32(kind.encode()) % 2 == 1


def refuse_to_fit(place: Path) -> None:
    """:class:`UserError` for a set that nothing may be fitted to."""
    if set_name(place).startswith(NOT_FOR_FITTING):
        raise UserError(f"{place}: nothing may be fitted to {set_name(place)}, see docs/benchmark.md; leave it out")


def refuse_equal_names(names: Sequence[str]) -> None:
    """:class:`UserError` for two sets of one name: they would be taken for one."""
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"two of the sets are called {name}; rename the file or folder of one, or leave it out")


def was_fitted(run: Run) -> bool:
    """Whether a run is one of ``real_runs``, whose odd half was fitted to; by what it says, wherever it lies."""
    seed, cell = run.config.get("seed"), (run.model_type, run.config.get("optimizer"))
    return (
        run.config.get("backend") == "torch" and cell in FITTED_CELLS and isinstance(seed, int) and seed < SEEDS_A_PLAN
    )


def to_score(runs: Sequence[Run]) -> NDArray[np.bool_]:
    """Which runs may be scored, shape (runs,): all but the fit half of those that were fitted to."""
    return halves(runs).score | ~np.array([was_fitted(run) for run in runs], bool)


def own(file: Path) -> RunSet:
    """A set of this project's study; of runs of the set that was fitted to, the score half."""
    study, name = load_study(file), set_name(file)
    return RunSet(name, study, Timeline.of(study.runs), [Group("own", name, to_score(study.runs))])


def workload(task: str) -> str:
    """Workload of AlgoPerf that a task is a variant of.

    >>> workload("imagenet_resnet_large_bn_init_jax")
    'imagenet_resnet'
    """
    return next((name for name in WORKLOADS if task.startswith(name)), task)


def _groups(level: str, runs: Iterable[Run], key: Callable[[Run], str]) -> list[Group]:
    keys = np.array([key(run) for run in runs])
    return [Group(level, str(name), keys == name) for name in np.unique(keys) if name]


def stranger_timeline(runs: Sequence[Run], labels: Sequence[Label]) -> Timeline:
    """The timeline of strangers' runs on the clock of records."""
    lengths = [len(run.observations) for run in runs]
    zones = [label.zones(length) for label, length in zip(labels, lengths, strict=True)]
    truths = []
    for label, length in zip(labels, lengths, strict=True):
        kind, onset = ("clean", None) if label.failure is None else ("failed", max(label.failure - AHEAD, 0))
        truths.append(Truth(kind, onset, label.failure, max(length - 1, 0)))  # type: ignore[arg-type]
    return Timeline(
        truths=tuple(truths),
        step=np.concatenate([*(np.arange(length) for length in lengths), np.empty(0, np.int64)]),
        bounds=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        zone=np.concatenate([*zones, np.empty(0, np.int8)]),
        healthy_steps=np.array([int((zone == HEALTHY).sum()) for zone in zones], dtype=np.int64),
    )
