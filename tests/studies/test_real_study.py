"""The study on real training: which runs it has, that forks share what they should, and that it can be resumed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rmetric.errors import UserError
from rmetric.evaluation.protocols import Timeline
from rmetric.evaluation.split import halves
from rmetric.evaluation.truth import truth_of
from rmetric.faults import NO_FAULT
from rmetric.live.run import LiveRun
from rmetric.measurements import MEASUREMENTS
from rmetric.records import Run
from studies.real_runs.disturbances import DISTURBANCES
from studies.real_runs.plan import MATRIX, RealSpec, RealStudyPlan, groups_of
from studies.real_runs.run import OPTIMIZERS, TORCH, fresh_run, train_group
from studies.runner import MANIFEST, run_study
from tests.live.live import read, without_times

SMALL = RealStudyPlan(steps=60, rows=4, length=24, workers=2, eval_every=10, device="cpu")
TWIN = RealSpec(model="tiny-llama", optimizer="adamw", seed=1, onset=None, repetition=1)
CLOCK = ("step_time_s", "lambda")
"""What the machine's mood has an influence on."""


def test_the_matrix_has_exactly_720_runs_in_the_design_s_proportions() -> None:
    specs = RealStudyPlan().specs()
    assert len(specs) == len({spec.experiment_id for spec in specs}) == 720
    for cell in MATRIX:
        mine = [spec for spec in specs if spec.model == cell.model]
        assert sum(spec.fault == NO_FAULT for spec in mine) == 48
        cells = Counter((spec.fault, spec.severity) for spec in mine if spec.fault != NO_FAULT)
        assert len(cells) == 24
        assert set(cells.values()) == {8}
        disturbed = Counter(spec.disturbance for spec in mine if spec.fault == NO_FAULT)
        assert disturbed == {None: 16, **dict.fromkeys(DISTURBANCES, 8)}


def test_distinct_healthy_steps_bound_one_false_alarm_in_ten_thousand() -> None:
    plan = RealStudyPlan()
    controls = {spec.group for spec in plan.specs() if spec.fault == NO_FAULT}
    assert len(controls) * plan.steps >= 100_000


def test_onsets_are_spread_over_the_middle_half_on_no_grid() -> None:
    onsets = np.array([spec.onset for spec in RealStudyPlan().specs() if spec.onset])
    assert onsets.min() >= 181
    assert onsets.max() <= 540
    assert len(set(onsets % 5)) == 5
    assert np.abs(np.histogram(onsets, bins=4, range=(181, 541))[0] / len(onsets) - 0.25).max() < 0.06


def test_forks_stay_in_one_half_of_the_seeds() -> None:
    for group in groups_of(RealStudyPlan().specs()):
        assert len({spec.repetition % 2 for spec in group}) == len({spec.seed % 2 for spec in group}) == 1
        assert group[0].repetition % 2 == group[0].seed % 2


def test_the_transfer_set_has_nothing_that_the_matrix_has() -> None:
    seen = {spec.group for spec in RealStudyPlan().specs()}
    specs = RealStudyPlan.transfer().specs()
    assert len(specs) == 132
    assert not seen & {spec.group for spec in specs}
    assert all((spec.model, spec.optimizer) not in {(cell.model, "adamw") for cell in MATRIX} for spec in specs)
    assert "LARGE_LR" in {spec.fault for spec in specs}


def test_a_seed_of_the_study_changes_every_run() -> None:
    one, two = RealStudyPlan().specs(), RealStudyPlan(seed=1).specs()
    assert not {spec.seed for spec in one} & {spec.seed for spec in two}


def test_a_study_can_be_narrowed() -> None:
    plan = RealStudyPlan().only(["gpt-4-moe", "llama-3-8b"], ["EXPERT_FAILURE", "LR_SPIKE"])
    faults = {(spec.model, spec.fault) for spec in plan.specs() if spec.fault != NO_FAULT}
    assert faults == {("tiny-moe", "EXPERT_FAILURE"), ("tiny-moe", "LR_SPIKE"), ("tiny-llama", "LR_SPIKE")}
    with pytest.raises(UserError, match="mixture-of-experts"):
        RealStudyPlan().only(["llama-3-8b"], ["EXPERT_FAILURE"])


@pytest.mark.parametrize("architecture", ["gpt-4-moe", "mistral-7b"])
def test_a_run_has_the_same_seed_and_onset_in_a_smaller_study(architecture: str) -> None:
    def runs(plan: RealStudyPlan) -> set[RealSpec]:
        return {replace(spec, number=0, twin=None) for spec in plan.specs()}

    assert runs(RealStudyPlan().only([architecture], [])) < runs(RealStudyPlan())
    assert runs(RealStudyPlan.smoke().only([architecture], [])) < runs(RealStudyPlan.smoke())


def test_the_seeds_of_the_published_studies_stay() -> None:
    matrix, transfer = RealStudyPlan().specs(), RealStudyPlan.transfer(seed=2).specs()
    assert [matrix[place].seed for place in (0, 240, 480, 719)] == [1, 1001, 2001, 2048]
    assert [transfer[place].seed for place in (0, 44, 88, 131)] == [2000001, 2001001, 2002001, 2002012]


def test_too_few_controls_are_refused() -> None:
    with pytest.raises(UserError, match="twins"):
        RealStudyPlan(repetitions=3, controls=2)


def test_the_severity_s_settings_reach_the_fault() -> None:
    spec = replace(TWIN, fault="NETWORK_DEGRADATION", severity="high", onset=5)
    assert spec.make_fault().parameters["live_time_scale"] == 0.05  # type: ignore[union-attr]
    combined = replace(spec, fault="NETWORK_DEGRADATION+LR_SPIKE").make_fault()
    assert combined.label == "NETWORK_DEGRADATION+LR_SPIKE"  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """A twin, a control with stray events only, a control with a bad batch, and a dead model."""
    folder = tmp_path_factory.mktemp("group")
    specs = [
        TWIN,
        replace(TWIN, disturbance="stray_events", onset=23, number=1),
        replace(TWIN, disturbance="bad_batch", onset=24, number=2),
        replace(TWIN, fault="LR_SPIKE", severity="high", onset=21, number=3),
    ]
    finished = list(train_group(SMALL, specs, folder))
    assert not list(folder.glob(".*"))
    runs = {item.name: read(folder / f"{item.name}.jsonl") for item in finished}
    return dict(zip(("twin", "stray", "bad batch", "spike"), runs.values(), strict=True))


@pytest.mark.slow
def test_a_fork_that_nothing_happens_to_is_its_twin(group: dict[str, Run]) -> None:
    twin, fork = group["twin"].observations, group["stray"].observations
    for name in {*MEASUREMENTS} - {*CLOCK, "hardware_events", "event_worker"}:
        np.testing.assert_array_equal(fork[name], twin[name], err_msg=name)
    assert fork["hardware_events"][22] == 1.0
    assert not twin["hardware_events"].any()


@pytest.mark.slow
def test_the_prefix_is_the_twin_s_to_the_last_digit(group: dict[str, Run]) -> None:
    for run in group.values():
        onset = run.onset or (run.config["disturbance"] or {"step": 61})["step"]
        for name in MEASUREMENTS:
            mine, twin = run.observations[name][: onset - 1], group["twin"].observations[name][: onset - 1]
            np.testing.assert_array_equal(mine, twin, err_msg=name)


@pytest.mark.slow
def test_nothing_in_the_step_times_tells_where_a_fork_begins(group: dict[str, Run]) -> None:
    for run in group.values():
        unknown = run.observations.step[np.isnan(run.observations["step_time_s"])]
        assert set(unknown % SMALL.eval_every) <= {0, 1}  # the first step, and those after a validation


@pytest.mark.slow
def test_a_bad_batch_leaps_once_and_is_a_control(group: dict[str, Run]) -> None:
    loss, usual = (group[name].observations["training_loss"] for name in ("bad batch", "twin"))
    assert loss[23] > usual[23] + 0.4
    assert np.abs(loss[24:] - usual[24:]).max() < 0.5
    assert group["bad batch"].onset is None
    assert group["bad batch"].config["disturbance"]["type"] == "bad_batch"


@pytest.mark.slow
def test_the_truth_can_be_worked_out_again_from_the_log(group: dict[str, Run]) -> None:
    held_out = group["spike"].first("HELD_OUT")
    assert held_out is not None
    own = np.array(held_out["held_out"], dtype=float)
    excess = ~(own <= 1.05 * np.array(held_out["twin"]))
    truth = truth_of(group["spike"])
    if truth.kind == "failed" and truth.reason == "DIVERGED":
        first = next(index for index in range(len(excess)) if excess[index:].all())
        assert truth.failure_step == held_out["steps"][first]
    assert held_out["steps"] == list(range(5, 61, 5))
    assert group["twin"].first("HELD_OUT")["held_out"] == held_out["twin"]  # type: ignore[index]


@pytest.mark.slow
def test_all_steps_of_a_disturbed_control_are_healthy_ones(group: dict[str, Run]) -> None:
    runs = list(group.values())
    assert Timeline.of(runs[1:2]).healthy_steps.tolist() == [60]
    begun = [(run.config["disturbance"] or {"step": 1})["step"] for run in runs if run.fault == "NONE"]
    own = [61 - step for step in begun]  # what is shared with the twin is counted once, in the twin
    assert Timeline.of(runs).healthy_steps.tolist() == [*own, *[0] * (len(runs) - len(own))]


def test_a_learning_rate_restart_comes_back() -> None:
    run = fresh_run(SMALL, TWIN)
    rates = []
    with DISTURBANCES["lr_restart"].disturb(run):
        for _ in range(70):
            run.step += 1
            rates.append(run.learning_rate_factor)
            for call in [*run.hooks["update"]]:
                call()
    assert rates[0] == 3.0
    assert rates[60:] == [1.0] * 10
    assert np.all(np.diff(rates) <= 0)
    assert run.learning_rate_factor == 1.0


def test_a_changed_mix_of_data_changes_some_rows() -> None:
    run = fresh_run(SMALL, TWIN)
    run.step = 1
    batch = run.batch()
    with DISTURBANCES["data_mix"].disturb(run):
        changed = run.hooks["batch"][0](batch)
    rows = (changed.input_ids != batch.input_ids).any(dim=1)
    assert 0 < int(rows.sum()) <= 2
    assert (changed.labels == changed.input_ids).all()


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_tiny_model_learns_under_every_optimizer(optimizer: str) -> None:
    run = fresh_run(SMALL, replace(TWIN, optimizer=optimizer))
    losses = [float(run.train_step()) for _ in range(60)]
    assert np.mean(losses[-10:]) < np.mean(losses[:5]) - 1.0


def test_an_unknown_optimizer() -> None:
    with pytest.raises(UserError, match="adamw"):
        fresh_run(SMALL, replace(TWIN, optimizer="lion"))


@pytest.fixture
def crashing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine dies in the middle of the third run."""
    steps = iter(range(10_000))
    train_step = LiveRun.train_step

    def dying(self: LiveRun) -> object:
        if next(steps) == 100:
            raise KeyboardInterrupt
        return train_step(self)

    monkeypatch.setattr(LiveRun, "train_step", dying)
    yield
    monkeypatch.undo()


@pytest.mark.slow
def test_what_was_finished_is_kept_and_the_rest_is_made(
    crashing: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(
        SMALL, cells=(replace(MATRIX[0], faults=("LR_SPIKE",)),), severities=("low", "high"), repetitions=1, controls=1
    )
    with pytest.raises(KeyboardInterrupt):
        run_study(plan, tmp_path, backend=TORCH)
    kept = {path.name: path.read_bytes() for path in tmp_path.glob("run_*.jsonl")}
    assert 1 <= len(kept) < 3
    with pytest.raises(UserError, match="--resume"):
        run_study(plan, tmp_path, backend=TORCH)
    monkeypatch.undo()
    result = run_study(plan, tmp_path, backend=TORCH, resume=True)
    assert (result.runs, result.made) == (3, 3 - len(kept))
    for name, content in kept.items():
        assert (tmp_path / name).read_bytes() == content
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    assert manifest["complete"] is True
    assert "torch" in manifest["study"]["libraries"]
    with pytest.raises(UserError, match="another study"):
        run_study(replace(plan, seed=2), tmp_path, backend=TORCH, resume=True)


@pytest.mark.slow
def test_a_fork_that_is_made_again_after_its_twin_has_the_same_log(tmp_path: Path) -> None:
    cell = replace(MATRIX[0], faults=("LR_SPIKE",))
    plan = replace(SMALL, cells=(cell,), severities=("high",), repetitions=1, controls=1)
    fork, twin = plan.specs()
    run_study(plan, tmp_path, backend=TORCH)
    log = tmp_path / f"{fork.experiment_id}.jsonl"
    before = without_times(log)
    assert before[0]["config"]["twin"] == twin.experiment_id
    log.unlink()
    assert run_study(plan, tmp_path, backend=TORCH, resume=True).made == 1
    assert without_times(log) == before


@pytest.mark.long
def test_12_runs_end_to_end_in_two_processes(tmp_path: Path) -> None:
    cells = tuple(replace(cell, faults=(cell.faults[2], cell.faults[3], cell.faults[5])) for cell in MATRIX)
    plan = RealStudyPlan.smoke(steps=120, rows=8, length=24, device="cpu", cells=cells)
    result = run_study(plan, tmp_path, backend=TORCH, jobs=2)
    assert (result.runs, result.made) == (12, 12)
    runs = [read(tmp_path / f"{item.name}.jsonl") for item in result.finished]
    truths = [truth_of(run) for run in runs]
    assert [truth.kind for run, truth in zip(runs, truths, strict=True) if run.fault == NO_FAULT] == ["clean"] * 3
    assert sum(truth.kind == "failed" for truth in truths) >= 3
    assert all(truth.incubation is not None and truth.incubation >= 0 for truth in truths if truth.kind == "failed")
    assert halves(runs).fit.all()  # one repetition, an odd one
