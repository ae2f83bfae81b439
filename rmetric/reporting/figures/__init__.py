"""Figures 1 to 5, one file each; :data:`FIGURES` has them in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tqdm import tqdm

from rmetric.evaluation.evaluator import Evaluator
from rmetric.reporting.figures import ablation, concept, curves, failing_run, lead_times
from rmetric.reporting.figures.save import Drawing, write, write_captions

FIGURES: dict[str, Callable[[Evaluator, str, str], Drawing]] = {
    "1": lambda ev, run, footnote: concept.draw(),
    "2": lambda ev, run, footnote: failing_run.draw(ev, run, footnote),
    "3": lambda ev, run, footnote: curves.draw(ev, footnote),
    "4": lambda ev, run, footnote: lead_times.draw(ev, footnote),
    "5": lambda ev, run, footnote: ablation.draw(ev, footnote),
}
"""Number → what draws it, given the evaluated study, the run of Figure 2 (empty: the typical one) and a footnote."""


def draw_figures(ev: Evaluator, numbers: Sequence[str] = tuple(FIGURES), run: str = "") -> list[Drawing]:
    """Draw figures by number, in order.

    Parameters
    ----------
    ev
        The evaluated study.
    numbers
        Keys of :data:`FIGURES`.
    run
        Name of the run of Figure 2; empty: the typical failing run.

    Raises
    ------
    UserError
        If no run has that name.
    """
    footnote = sample_footnote(ev)
    if "2" in numbers:
        failing_run.choose(ev, run)  # a wrong name is told before any work is done
    chosen = [number for number in FIGURES if number in numbers]
    with tqdm(chosen, desc="drawing", unit="figure", disable=None, delay=1.0) as bar:
        return [FIGURES[number](ev, run, footnote) for number in bar]


def sample_footnote(ev: Evaluator) -> str:
    """What a figure of the committed sample says below; empty for a study."""
    if not ev.study.note:
        return ""
    return f"Drawn from the {len(ev.study.runs)} committed sample logs, not from the full study."


__all__ = ["FIGURES", "Drawing", "draw_figures", "sample_footnote", "write", "write_captions"]
