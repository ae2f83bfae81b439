"""The case study at small size: forks that differ in the fault alone, judged against their twin."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from rmetric.errors import UserError
from rmetric.evaluation.truth import truth_of
from studies.case_study.plan import CaseStudyPlan
from studies.case_study.run import CaseStudy, run_case_study
from tests.live.live import read, without_times
from tests.live.small_models import END, save_model

FAULTS = ("LR_SPIKE:factor=300", "SILENT_DATA_CORRUPTION:target=weight,bit=2,persistence=transient", "NONE")
SMALL = {"steps": 90, "onset": 31, "rows": 8, "length": 32, "workers": 2, "eval_every": 10, "judge_every": 5}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> CaseStudy:
    out = tmp_path_factory.mktemp("case_study")
    return run_case_study(CaseStudyPlan(faults=FAULTS, **SMALL), out)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_control_under_the_monitor_is_the_twin_to_the_last_bit(study: CaseStudy) -> None:
    assert study.twin_matches_control is True
    control = study.logs[-1].stem
    assert study.held_out[control] == study.held_out["twin"]
    assert study.judged_steps == list(range(5, 91, 5))


@pytest.mark.slow
def test_runs_share_the_prefix_and_part_at_the_onset(study: CaseStudy) -> None:
    columns = [read(log).observations for log in study.logs]
    for name in ("training_loss", "grad_norm", "sigma_sq", "update_rms"):
        for faulty in columns[:-1]:
            before = columns[-1].step < 31
            assert faulty[name][: before.sum()].tolist() == pytest.approx(
                columns[-1][name][before].tolist(), nan_ok=True
            )
    assert columns[0]["learning_rate"][30] == pytest.approx(300 * columns[-1]["learning_rate"][30])


@pytest.mark.slow
def test_the_logs_say_what_was_done_and_how_it_ended(study: CaseStudy) -> None:
    spike, flip, control = (read(log) for log in study.logs)
    assert (spike.fault, spike.onset, control.fault, control.onset) == ("LR_SPIKE", 31, "NONE", None)
    assert spike.config["fault_injection"]["params"]["factor"] == 300.0
    truths = [truth_of(run) for run in (spike, flip, control)]
    assert [truth.kind for truth in truths] == ["failed", "recovered", "clean"]
    assert truths[0].failure_step is not None and 31 <= truths[0].failure_step <= 51
    cleared = spike.first("FAULT_CLEARED")
    assert cleared is None or cleared["step"] == 51
    assert "tensor" in json.dumps(flip.events)  # the exact place of the flip


@pytest.mark.slow
def test_the_label_follows_from_the_held_out_losses_alone(study: CaseStudy) -> None:
    twin, spiked = study.held_out["twin"], study.held_out[study.logs[0].stem]
    excess = [not own <= 1.05 * healthy for own, healthy in zip(spiked, twin, strict=True)]
    outcome = truth_of(read(study.logs[0]))
    if outcome.reason == "DIVERGED":
        first = next(index for index in range(len(excess)) if all(excess[index:]))
        assert outcome.failure_step == study.judged_steps[first]
    else:
        assert outcome.reason == "NAN_LOSS" and math.isnan(spiked[-1])


@pytest.mark.long
def test_two_processes_write_the_same_bytes_but_for_times(study: CaseStudy, tmp_path: Path) -> None:
    again = run_case_study(CaseStudyPlan(faults=FAULTS, **SMALL), tmp_path, jobs=2)  # type: ignore[arg-type]
    assert json.dumps(again.held_out) == json.dumps(study.held_out)
    for one, two in zip(study.logs, again.logs, strict=True):
        assert without_times(one) == without_times(two)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"faults": ("LR_SPIKES",)}, "did you mean"),
        ({"faults": ("EXPERT_FAILURE",)}, "mixture-of-experts"),
        ({"model": "tiny-lama"}, "tiny-lama"),
        ({"onset": 700}, "does not lie in a run"),
        ({"rows": 10}, "choose a multiple"),
        ({"device": "cuda:99"}, "choose --device cpu"),
        ({"dataset": "no/such/file.txt"}, "no/such/file.txt"),
    ],
)
def test_what_cannot_be_run_is_said_before_any_training(plan: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        run_case_study(CaseStudyPlan(**plan), tmp_path)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_the_onset_is_drawn_from_the_seed_in_the_middle_half() -> None:
    onsets = [CaseStudyPlan(seed=seed).first_disturbed for seed in range(200)]
    assert min(onsets) > 150 and max(onsets) <= 450
    assert len({*onsets}) > 100
    assert CaseStudyPlan(seed=3).first_disturbed == onsets[3]


@pytest.mark.slow
def test_parts_of_a_combined_fault_end_each_at_its_own_time(tmp_path: Path) -> None:
    plan = CaseStudyPlan(
        faults=("LR_SPIKE:factor=2,duration_steps=5+DATA_CORRUPTION@high:token_share=0.1",),
        **{**SMALL, "steps": 45},  # type: ignore[arg-type]
    )
    run = read(run_case_study(plan, tmp_path).logs[0])
    assert run.severity == "medium+high"
    [cleared] = [event for event in run.events if event["event"] == "FAULT_CLEARED"]
    assert (cleared["fault"], cleared["step"]) == ("LR_SPIKE", 36)
    rate = run.observations["learning_rate"]
    assert rate[29:36].tolist() == [1e-3, *[2e-3] * 5, 1e-3]


@pytest.mark.long
def test_a_model_of_a_local_folder_goes_through_the_whole_study(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "mine", eos_token=END)
    plan = CaseStudyPlan(model=str(folder), faults=("LR_SPIKE", "NONE"), onset=3, steps=6, rows=4, length=8, workers=2)
    study = run_case_study(plan, tmp_path, jobs=1)
    logs = [read(log) for log in study.logs]
    assert [len(log.observations) for log in logs] == [6, 6]
    assert str(tmp_path) not in "".join(json.dumps(log.config) for log in logs)
