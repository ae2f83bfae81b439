"""Several studies at once: an evaluator for each, and where its scores are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.scores import DRAWS
from rmetric.evaluation.studies import REAL, SIMULATED, Study, backend_of


def evaluators(
    studies: Mapping[str, Study],
    names: Sequence[str] = (),
    *,
    cache: Path,
    jobs: int | None = None,
    plugins: Sequence[str | Path] = (),
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Evaluator]:
    """:meth:`Evaluator.of` for each study, of the detectors of these names (none: all that need no extra).

    The scores of several studies are kept in folders of their own.
    """
    folders, chosen = caches(cache, studies), [*dict.fromkeys(names)]
    return {
        name: Evaluator.of(study, chosen, cache=folders[name], jobs=jobs, plugins=plugins, draws=draws, seed=seed)
        for name, study in studies.items()
    }


def caches(root: Path, studies: Mapping[str, Study]) -> dict[str, Path]:
    """Folder of the scores of each study: the root itself if there is one study."""
    return {name: root if len(studies) == 1 else root / name for name in studies}


def pair_of(studies: Mapping[str, Evaluator]) -> tuple[Evaluator, Evaluator] | None:
    """The simulated and the real study, if these are the two; ``None`` otherwise."""
    kinds = {backend_of(ev.study): ev for ev in studies.values()}
    return (kinds[SIMULATED], kinds[REAL]) if len(studies) == 2 and {*kinds} == {SIMULATED, REAL} else None
