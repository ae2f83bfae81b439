"""Transfer of the robust R-Metric: what is held out is never looked at, each run is counted once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.split import halves
from rmetric.evaluation.studies import Study
from rmetric.records import Run
from studies.robust.fit import Fit, fit_study
from studies.robust.transfer import (
    Transfer,
    fault_kinds,
    study_statistics,
    to_study,
    together,
    without_architectures,
    without_fault_kinds,
)
from tests.robust.runs import columns, disturbed, healthy
from tests.robust.studies import ARCHITECTURES, GRADIENTS, LATER, LOSS, evaluated, made_study


@pytest.fixture(scope="module")
def ev() -> Evaluator:
    return evaluated(made_study())


def spoiled(study: Study, wanted: Callable[[Run], bool], half: str) -> Study:
    """The same study with other measurements in some runs of one half."""
    chosen = getattr(halves(study.runs), half).tolist()
    runs = [
        replace(run, observations=healthy(seed=777)) if mine and wanted(run) else run
        for run, mine in zip(study.runs, chosen, strict=True)
    ]
    assert sum(one is not other for one, other in zip(runs, study.runs, strict=True)) > 0
    return Study(study.folder, runs, checksums=study.checksums)


def by_name(found: list[Transfer]) -> dict[str, Transfer]:
    return {item.held_out: item for item in found}


def fitted(item: Transfer) -> Fit:
    assert item.fitted is not None
    return item.fitted


def test_nothing_held_out_is_the_fit_that_is_shipped(ev: Evaluator) -> None:
    home, content = study_statistics(ev).home, fit_study(ev.study, jobs=1)
    assert home is not None
    assert home.threshold <= content["threshold"] < home.threshold + 0.001  # rounded up
    assert tuple(content["weights"].values()) == home.weights


def test_a_kind_held_out_is_scored_on_its_runs_and_the_controls(ev: Evaluator) -> None:
    found = by_name(without_fault_kinds(ev))
    assert list(found) == fault_kinds(ev) == [GRADIENTS, LOSS]
    scored = [ev.study.runs[index] for index in np.flatnonzero(found[LOSS].scored)]
    assert {run.fault for run in scored} == {LOSS, "NONE"}
    assert {run.config["repetition"] for run in scored} == {2}
    counts = found[LOSS].counts
    assert counts is not None
    assert counts.tp[found[LOSS].scored].sum() == 2  # both architectures


@pytest.mark.parametrize("kind", [GRADIENTS, LOSS])
def test_a_kind_held_out_is_never_looked_at(ev: Evaluator, kind: str) -> None:
    other = evaluated(spoiled(ev.study, lambda run: run.fault == kind, "fit"))
    mine, again = (by_name(without_fault_kinds(each))[kind] for each in (ev, other))
    assert fitted(mine) == fitted(again)
    assert mine.counts is not None and again.counts is not None
    assert np.array_equal(mine.counts.lead, again.counts.lead, equal_nan=True)
    assert study_statistics(ev).home != study_statistics(other).home  # which did look


def test_a_combination_is_held_out_with_each_of_its_parts(ev: Evaluator) -> None:
    runs = [
        replace(run, config={**run.config, "fault_injection": {**run.config["fault_injection"], "type": "A+B"}})
        if run.fault == LOSS
        else run
        for run in ev.study.runs
    ]
    both = evaluated(Study(ev.study.folder, runs, checksums=ev.study.checksums))
    assert fault_kinds(both) == [GRADIENTS, "A", "B"]
    found, alone = by_name(without_fault_kinds(both)), by_name(without_fault_kinds(ev))
    assert fitted(found["A"]) == fitted(found["B"]) == fitted(alone[LOSS])


@pytest.mark.parametrize("model", ARCHITECTURES)
def test_an_architecture_held_out_is_never_looked_at(ev: Evaluator, model: str) -> None:
    other = evaluated(spoiled(ev.study, lambda run: run.model_type == model, "fit"))
    mine, again = (by_name(without_architectures(each))[model] for each in (ev, other))
    assert fitted(mine) == fitted(again)
    assert {ev.study.runs[index].model_type for index in np.flatnonzero(mine.scored)} == {model}


def test_the_score_half_is_never_fitted_to(ev: Evaluator) -> None:
    other = evaluated(spoiled(ev.study, lambda run: True, "score"))
    for held_out in (without_fault_kinds, without_architectures):
        assert [fitted(item) for item in held_out(ev)] == [fitted(item) for item in held_out(other)]


def test_all_parts_together_count_each_run_once(ev: Evaluator) -> None:
    found = without_architectures(ev)
    of_part = [ev.runs_where(model_type=item.held_out) for item in found]
    item = together("all", found, of_part)
    assert item is not None and item.counts is not None
    assert np.array_equal(item.scored, ev.halves.score)
    for part, runs_R in zip(found, of_part, strict=True):
        assert part.counts is not None
        chosen = runs_R & part.scored
        assert np.array_equal(item.counts.of(chosen).tp, part.counts.of(chosen).tp)
        assert np.array_equal(item.counts.of(chosen).fp, part.counts.of(chosen).fp)
    assert together("all", [replace(found[0], counts=None), found[1]], of_part) is None
    assert together("all", [], []) is None


def test_what_cannot_be_fitted_has_no_counts(ev: Evaluator) -> None:
    runs = [run for run in ev.study.runs if run.fault != LOSS and run.model_type == ARCHITECTURES[0]]
    alone = evaluated(Study(ev.study.folder, runs, checksums=["x"]))
    for item in (*without_fault_kinds(alone), *without_architectures(alone)):
        assert item.fitted is None and item.counts is None
        assert item.home is not None


def test_a_false_alarm_is_put_down_to_what_raised_it(ev: Evaluator) -> None:
    bad = {"grad_norm": (slice(150, 151), 1e6), "training_loss": (slice(220, 230), 9.0)}
    runs = [replace(run, observations=disturbed(bad)) if run.fault == "NONE" else run for run in ev.study.runs]
    other = evaluated(Study(ev.study.folder, runs, checksums=ev.study.checksums))
    home = study_statistics(ev).home
    assert home is not None
    controls_R = other.runs_where(fault="NONE") & other.halves.score
    counts = study_statistics(other).counts(home, controls_R)
    causes = study_statistics(other).causes(home, controls_R)
    assert causes == {"grad_norm.factor": 2, "training_loss.lasting": 2}
    assert causes.total() == counts.fp[controls_R].sum()


def test_from_one_study_to_another_everything_is_the_others(ev: Evaluator) -> None:
    """The other study's gradients scatter more and are sampled anew: its own threshold is another one."""
    source = made_study("simulator", first_seed=100)
    wide = [replace(run, observations=_scattered(run)) for run in source.runs]
    other = evaluated(Study(source.folder, wide, checksums=source.checksums))
    as_it_is, anew = to_study(other, ev, "simulated → real")
    assert as_it_is.fitted == study_statistics(other).home != study_statistics(ev).home
    assert fitted(anew).tails == fitted(as_it_is).tails and fitted(anew).weights == fitted(as_it_is).weights
    assert as_it_is.home is study_statistics(ev).home_counts
    again = evaluated(spoiled(ev.study, lambda run: True, "fit"))
    moved, reset = to_study(other, again, "simulated → real")
    assert moved.counts is not None and as_it_is.counts is not None
    assert np.array_equal(moved.counts.lead, as_it_is.counts.lead, equal_nan=True)  # no look at the fit half
    assert reset.fitted != anew.fitted  # whose threshold is all that it changes


def _scattered(run: Run):  # type: ignore[no-untyped-def]
    seed = int(run.config["seed"])
    made = columns(seed + 5000)
    made["grad_norm"] = made["grad_norm"] ** 3
    if run.fault == GRADIENTS:
        made["grad_norm"][LATER] = 400.0
    if run.fault == LOSS:
        made["training_loss"][LATER] = 9.0
    return replace(run.observations, columns=made)
