"""The mechanism study: which runs it has, and that forks share with their twin what the monitors measure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rmetric.errors import UserError
from rmetric.evaluation.protocols import Timeline
from rmetric.faults import NO_FAULT
from rmetric.measurements import MECHANISM
from rmetric.records import Run
from studies.mechanism.plan import GROUPS, Group, MechanismPlan, MechanismSpec, strength_of
from studies.mechanism.run import WATCHED, train_all
from studies.runner import run_study
from tests.live.live import read

SMALL = MechanismPlan(
    seeds=2,
    steps=48,
    stride=1,
    eval_every=12,
    length=16,
    workers=2,
    device="cpu",
    groups=(
        Group("tiny-llama", 4, ("LARGE_LR:factor=30", "LOW_PRECISION_ATTENTION:bias_ulp=48+LARGE_LR:factor=2")),
        Group("tiny-moe", 4, ("ROUTER_IMBALANCE:imbalance_factor=0.9",)),
    ),
)


def _of(specs: list[MechanismSpec], fault: str) -> list[MechanismSpec]:
    return [spec for spec in specs if spec.fault == fault]


def test_the_plan_has_every_fault_of_the_issue_at_several_strengths() -> None:
    specs = MechanismPlan().specs()
    assert len({spec.experiment_id for spec in specs}) == len(specs)
    strengths = {fault: {spec.severity for spec in _of(specs, fault)} for fault in {spec.fault for spec in specs}}
    for fault in ("LOW_PRECISION_ATTENTION", "LARGE_LR", "ROUTER_IMBALANCE", "EXPERT_FAILURE"):
        assert len(strengths[fault]) >= 2
    assert len(strengths["LOW_PRECISION_ATTENTION+LARGE_LR"]) >= 2
    assert {"×2", "×30"} <= strengths["LARGE_LR"]
    assert {spec.rows for spec in _of(specs, "LARGE_LR")} == {8, 16, 32}


def test_every_group_and_seed_has_one_twin_and_one_onset() -> None:
    plan = MechanismPlan()
    groups: dict[int, list[MechanismSpec]] = {}
    for spec in plan.specs():
        groups.setdefault(spec.seed, []).append(spec)
    assert len(groups) == len(GROUPS) * plan.seeds
    for specs in groups.values():
        assert len({(spec.model, spec.rows, spec.repetition) for spec in specs}) == 1
        assert [spec.onset for spec in specs].count(None) == 1
        (onset,) = {spec.onset for spec in specs} - {None}
        assert plan.steps / 3 < onset <= plan.steps / 2
        assert plan.stride * 16 < onset  # the detectors have warmed up


def test_a_strength_is_written_with_its_unit() -> None:
    assert strength_of("LARGE_LR:factor=2.5") == "×2.5"
    assert strength_of("LARGE_LR") == "default"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seeds": 1}, "--seeds 2"),
        ({"steps": 100, "stride": 10}, "too few"),
        ({"groups": (Group("tiny-llama", 6, ()),)}, "batch of 6"),
    ],
)
def test_plans_that_cannot_be(change: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        MechanismPlan(**change)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of a tiny study's first seed."""
    made = tmp_path_factory.mktemp("mechanism")
    first = [spec for spec in SMALL.specs() if spec.repetition == 1]
    assert [len(finished) for finished in train_all(SMALL, first, made, 1, ())] == [1] * 5  # each as it is done
    return made


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Run]:
    return {path.stem: read(path) for path in sorted(folder.glob("run_*.jsonl"))}


@pytest.mark.slow
def test_the_mechanism_is_measured_every_stride_and_as_the_model_allows(runs: dict[str, Run]) -> None:
    for run in runs.values():
        measured = {name for name in MECHANISM if run.observations.has(name)}
        assert {"qk_entropy", "qk_spectral_norm", "attention_entropy", "update_max", "update_alignment"} <= measured
        assert ("router_similarity" in measured) == (run.model_type == "tiny-moe")
        every = run.observations.step[~np.isnan(run.observations["attention_entropy"])]
        assert every.tolist() == list(range(every[0], SMALL.steps + 1, SMALL.stride))


@pytest.mark.slow
def test_a_fork_has_its_twin_s_measurements_up_to_the_onset_and_others_after_it(runs: dict[str, Run]) -> None:
    for run in runs.values():
        if run.fault == NO_FAULT:
            continue
        assert run.onset is not None
        twin = runs[run.config["twin"]]
        for name in MECHANISM:
            mine, twins = (one.observations[name][: run.onset - 1] for one in (run, twin))
            np.testing.assert_array_equal(mine, twins, err_msg=name)
    first = next(run for run in runs.values() if run.fault == "LARGE_LR")
    twin = runs[first.config["twin"]]
    assert first.observations["update_max"][-1] > 5 * twin.observations["update_max"][-1]


@pytest.mark.slow
def test_healthy_steps_are_those_of_the_twins(runs: dict[str, Run]) -> None:
    twins = sum(run.fault == NO_FAULT for run in runs.values())
    assert twins == 2
    assert Timeline.of(list(runs.values())).healthy_steps.sum() == twins * SMALL.steps


@pytest.mark.slow
def test_strengths_and_batch_stand_in_the_logs(runs: dict[str, Run]) -> None:
    both = next(run for run in runs.values() if "+" in run.fault)
    assert both.severity == "48 ulp, ×2"
    assert both.config["batch_size"] == 4
    assert both.config["fault_injection"]["params"]["LARGE_LR"]["factor"] == 2.0


@pytest.mark.slow
def test_a_finished_study_is_not_trained_again_and_another_one_is_refused(tmp_path: Path) -> None:
    twins = replace(SMALL, groups=(Group("tiny-llama", 4, ()),))
    assert run_study(twins, tmp_path, backend=WATCHED).made == twins.seeds
    assert run_study(twins, tmp_path, backend=WATCHED, resume=True).made == 0
    with pytest.raises(UserError, match="another study"):
        run_study(replace(twins, length=24), tmp_path, backend=WATCHED, resume=True)
