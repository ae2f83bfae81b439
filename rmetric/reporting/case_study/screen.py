"""What a case study says on the screen while it is made."""

from __future__ import annotations

import inspect
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING

from tqdm import tqdm

from rmetric.faults import FAULTS

if TYPE_CHECKING:
    from rmetric.training.case_study import CaseStudyPlan


def opening(plan: CaseStudyPlan, jobs: int) -> str:
    """What is about to be done, in a line or two."""
    text = plan.dataset or f"the source of the standard library of Python {platform.python_version()}"
    onset = plan.first_disturbed
    many = f"{len(plan.faults)} runs and their twin" if len(plan.faults) != 1 else "a run and its twin"
    return (
        f"training {plan.model} on {text}\n{onset - 1:,} healthy steps, then {many} from step {onset:,} to "
        f"{plan.steps:,}, in {jobs} process{'es' if jobs > 1 else ''}"
    )


@contextmanager
def progress_of(plan: CaseStudyPlan, *, begin: Callable[[], None]) -> Iterator[Callable[[str, int], None]]:
    """A progress bar over the steps of all runs; gives what is to be told of the steps that a run has done.

    Parameters
    ----------
    plan
        Of the study.
    begin
        Called before the first step counts: nothing that could be told before training is wrong with the plan.
    """
    forked = plan.steps - plan.first_disturbed + 1
    total = plan.first_disturbed - 1 + (1 + len(plan.faults)) * forked
    with tqdm(total=total, unit="step", disable=None, smoothing=0.1) as bar:
        begun = False

        def tell(name: str, steps: int) -> None:
            nonlocal begun
            if not begun:
                begun = True
                begin()
            bar.set_description(name[-24:], refresh=False)
            bar.update(steps)

        yield tell


def fault_list() -> str:
    """All faults with their parameters and the defaults of these, as ``--faults`` takes them."""
    lines = []
    for name, fault in FAULTS.items():
        known = ",".join(f"{item.name}={item.default}" for item in fields(fault) if item.default is not MISSING)
        lines += [f"{name:24} {(inspect.getdoc(fault) or name).splitlines()[0]}", f"{'':24} {known}"]
    return "\n".join(lines)
