"""Figures 0 to 9, one file each: :data:`FIGURES`, then those that need real runs, :data:`REAL_FIGURES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tqdm import tqdm

from rmetric.errors import UserError
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.studies import backend_of
from rmetric.reporting.style import Drawing, write, write_captions
from studies.calibration import figure as simulated_vs_real
from studies.calibration.comparison import compared
from studies.cluster import figure as overhead_ratio
from studies.live_results import LiveResults
from studies.paper.figures import ablation, concept, curves, failing_run, lead_times, result
from studies.risk import confusion, reliability
from studies.several import only_real, pair_of

FIGURES: dict[str, Callable[[Evaluator, str, str], Drawing]] = {
    "0": lambda ev, run, footnote: result.draw({backend_of(ev.study): ev}, footnote),
    "1": lambda ev, run, footnote: concept.draw(),
    "2": lambda ev, run, footnote: failing_run.draw(ev, run, footnote),
    "3": lambda ev, run, footnote: curves.draw(ev, footnote),
    "4": lambda ev, run, footnote: lead_times.draw(ev, footnote),
    "5": lambda ev, run, footnote: ablation.draw(ev, footnote),
}
"""Number → what draws it, given the evaluated study, the run of Figure 2 (empty: the typical one) and a footnote."""


SEVERAL: dict[str, Callable[[Mapping[str, Evaluator], str, str], list[Drawing]]] = {
    "0": lambda studies, run, footnote: [result.draw(studies, footnote)],
    "1": lambda studies, run, footnote: [concept.draw()],
    "2": lambda studies, run, footnote: failing_run.draw_several(studies, run, footnote),
    "3": lambda studies, run, footnote: curves.draw_several(studies, footnote),
    "4": lambda studies, run, footnote: [lead_times.draw_several(studies, footnote)],
    "5": lambda studies, run, footnote: [ablation.draw_several(studies, footnote)],
}
"""As :data:`FIGURES`, of several studies by name, side by side."""

REAL_FIGURES: dict[str, Callable[[Evaluator, str], Drawing]] = {"6": reliability.draw, "7": confusion.draw}
"""Of the real study alone, on whose kind of runs the risk model is fitted."""
BOTH = "8"
"""Figure that needs a simulated and a real study."""
OVERHEAD = "9"
"""Figure of the real study and of what live runs gave."""


def draw_figures(
    studies: Evaluator | Mapping[str, Evaluator],
    numbers: Sequence[str] = (),
    run: str = "",
    live: LiveResults | None = None,
) -> list[Drawing]:
    """Draw figures by number, in order.

    Parameters
    ----------
    studies
        The evaluated study, or several by name: then side by side.
    numbers
        Of the figures, 0 to 9; none: all that these studies have.
    run
        Name of the run of Figure 2; empty: the typical failing run.
    live
        What real runs gave, for Figure 9.

    Raises
    ------
    UserError
        If no run has that name, or a figure needs a study that is not there.
    """
    named = {"": studies} if isinstance(studies, Evaluator) else dict(studies)
    first = next(iter(named.values()))
    footnote = " ".join(filter(None, (sample_footnote(ev) for ev in named.values())))
    possible = possible_figures(named)
    _check(numbers, possible)
    chosen = [number for number in possible if number in (numbers or possible)]
    if "2" in chosen and not any(failing_run.has(ev, run) for ev in named.values()):
        failing_run.choose(first, run)  # a wrong name is told before any work is done
    drawings: list[Drawing] = []
    with tqdm(chosen, desc="drawing", unit="figure", disable=None, delay=1.0) as bar:
        for number in bar:
            drawings += _draw(number, named, run, footnote, live)
    return drawings


def possible_figures(named: Mapping[str, Evaluator]) -> list[str]:
    """Numbers of the figures that can be drawn of these studies, in order."""
    real = only_real(named)
    return [
        *FIGURES,
        *(REAL_FIGURES if real else ()),
        *([BOTH] if pair_of(named) else []),
        *([OVERHEAD] if real else []),
    ]


def _check(numbers: Sequence[str], possible: Sequence[str]) -> None:
    for number in numbers:
        if number not in possible:
            needs = "a simulated and a real study" if number == BOTH else "a real study"
            raise UserError(f"Figure {number} needs {needs}; add data/real_runs.parquet to --logs")


def _draw(
    number: str, named: Mapping[str, Evaluator], run: str, footnote: str, live: LiveResults | None
) -> list[Drawing]:
    real, both = only_real(named), pair_of(named)
    if number in REAL_FIGURES and real:
        return [REAL_FIGURES[number](real, sample_footnote(real))]
    if number == BOTH and both:
        return [simulated_vs_real.draw(compared(*both))]
    if number == OVERHEAD and real:
        return [overhead_ratio.draw(real, live)]
    if len(named) == 1:
        return [FIGURES[number](next(iter(named.values())), run, footnote)]
    return SEVERAL[number](named, run, footnote)


def sample_footnote(ev: Evaluator) -> str:
    """What a figure of the committed sample says below; empty for a study."""
    if not ev.study.note:
        return ""
    return f"Drawn from the {len(ev.study.runs)} committed sample logs, not from the full study."


__all__ = ["FIGURES", "REAL_FIGURES", "Drawing", "draw_figures", "sample_footnote", "write", "write_captions"]
