"""Several studies at once: what each is called, where its transfer set lies, and where its scores are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rmetric.cli import split_part
from rmetric.errors import UserError
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.intervals import DRAWS
from rmetric.evaluation.loading import Study, load_study

SIMULATED, REAL = "simulated", "real"
WORLDS = {"simulator": SIMULATED, "torch": REAL}
"""``backend`` of a log's config → what its study is called."""
TRANSFER, FRESH, TRANSFER_2, FRESH_2, TRANSFER_3, TRANSFER_4, TRANSFER_5 = BESIDE = (
    "transfer", "fresh", "transfer_2", "fresh_2", "transfer_3", "transfer_4", "transfer_5",
)  # fmt: skip
"""Sets of runs that are scored with what was fitted to the study, see :mod:`rmetric.dataset.layout`."""


def world_of(study: Study) -> str:
    """``simulated`` or ``real``, if all its logs say so; empty if they do not, or differ."""
    found = {WORLDS.get(str(run.config.get("backend")), "") for run in study.runs}
    return found.pop() if len(found) == 1 else ""


def load_studies(sources: Sequence[str | Path], jobs: int | None = None) -> dict[str, Study]:
    """Studies by name, in the order given: ``simulated`` or ``real``, or else the name of folder or file.

    Raises
    ------
    UserError
        If the same source is given twice, or one cannot be read.
    """
    studies = [load_study(source, jobs) for source in sources]
    worlds = [world_of(study) for study in studies]
    alone = {world for world, count in Counter(worlds).items() if world and count == 1}
    names = [world if world in alone else Path(source).name for world, source in zip(worlds, sources, strict=True)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"--logs has {twice[0]} twice; give each study once")
    return dict(zip(names, studies, strict=True))


def load_beside(part: str, sources: Mapping[str, str | Path], jobs: int | None = None) -> dict[str, Study]:
    """Sets that belong to studies, by the study's name, of those that have one.

    Parameters
    ----------
    part
        One of :data:`BESIDE`. Of ``FILE.parquet`` it is ``FILE.parquet:part``; of a folder the one of that
        name with ``_PART``.
    sources
        Study → folder or file.
    """
    found = {name: _beside(part, source, jobs) for name, source in sources.items()}
    return {name: study for name, study in found.items() if study is not None}


def _beside(part: str, source: str | Path, jobs: int | None) -> Study | None:
    place = split_part(source)
    if place is None:
        folder = Path(f"{source}_{part.upper()}")
        return load_study(folder, jobs) if any(folder.glob("*.jsonl")) else None
    from rmetric.dataset.read import sets_of

    file, own = place
    return load_study(f"{file}:{part}", jobs) if not own and part in sets_of(file)[1:] else None


def evaluators(
    studies: Mapping[str, Study],
    names: Sequence[str] | None = None,
    *,
    cache: Path,
    jobs: int | None = None,
    plugins: Sequence[str | Path] = (),
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Evaluator]:
    """:meth:`Evaluator.of` for each study; the scores of several are kept in folders of their own."""
    folders = caches(cache, studies)
    return {
        name: Evaluator.of(study, names, cache=folders[name], jobs=jobs, plugins=plugins, draws=draws, seed=seed)
        for name, study in studies.items()
    }


def caches(root: Path, studies: Mapping[str, Study]) -> dict[str, Path]:
    """Folder of the scores of each study: the root itself if there is one study."""
    return {name: root if len(studies) == 1 else root / name for name in studies}


def pair_of(studies: Mapping[str, Evaluator]) -> tuple[Evaluator, Evaluator] | None:
    """The simulated and the real study, if these are the two; ``None`` otherwise."""
    worlds = {world_of(ev.study): ev for ev in studies.values()}
    return (worlds[SIMULATED], worlds[REAL]) if len(studies) == 2 and {*worlds} == {SIMULATED, REAL} else None


def only_real(studies: Mapping[str, Evaluator]) -> Evaluator | None:
    """The real study, if there is exactly one."""
    real = [ev for ev in studies.values() if world_of(ev.study) == REAL]
    return real[0] if len(real) == 1 else None
