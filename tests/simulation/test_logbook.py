from __future__ import annotations

import getpass
import hashlib
import itertools
import json
import math
import os
import platform
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmetric.architectures import ARCHITECTURES
from rmetric.detectors import first_alert, online_detectors
from rmetric.evaluation.ground_truth import Outcome
from rmetric.faults import FAULTS, SEVERITIES
from rmetric.log_lines import strict
from rmetric.log_reader import chunks, read_log
from rmetric.log_writer import to_log_precision
from rmetric.measurements import MEASUREMENTS
from rmetric.records import Run
from rmetric.signals import HardwareFailureRate, ValidationDrift
from rmetric.simulation import RunLog, RunSpec, Traces, TrainingSimulator, judge_traces, write_logs
from tests.helpers import bits, lines_of

pytestmark = pytest.mark.usefixtures("made_up_parameters")
STEPS, LOG_EVERY, EVAL_EVERY = 1003, 10, 50  # a horizon off the grid
AUTHORS_FIELDS = {
    "step", "training_loss", "validation_loss", "learning_rate", "active_workers", "force_gqa_mismatch",
    "force_rms_norm_error", "is_nan", "is_crashed", "r_metric", "lambda_norm", "sigma_sq_norm", "delta_l_norm",
    "alerts",
}  # fmt: skip


@dataclass(frozen=True)
class Made:
    """One log with all that it was made of."""

    spec: RunSpec
    row: int
    traces: Traces
    outcome: Outcome
    log: RunLog
    events: list[dict[str, Any]]
    run: Run

    @property
    def records(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == "METRICS"]

    @property
    def end(self) -> int:
        """Last step of the log."""
        return self.outcome.failure_step or STEPS


def _batch(architecture: str) -> list[RunSpec]:
    dense = not ARCHITECTURES[architecture].experts
    faults = [name for name, fault in FAULTS.items() if fault.simulated and not (fault.needs_experts and dense)]
    shape = {"architecture": architecture, "steps": STEPS, "log_every": LOG_EVERY, "eval_every": EVAL_EVERY}
    specs = [
        RunSpec(fault=fault, severity=severity, seed=100 * number + 7, **shape)  # type: ignore[arg-type]
        for number, fault in enumerate([*faults, "LR_SPIKE+NODE_FAILURE"])
        for severity in SEVERITIES
    ]
    specs += [RunSpec(seed=seed, **shape) for seed in range(4)]  # type: ignore[arg-type]
    return [replace(spec, number=number) for number, spec in enumerate(specs)]


def _make(specs: list[RunSpec], folder: Path) -> list[Made]:
    traces = TrainingSimulator().simulate(specs)
    outcomes = judge_traces(traces)
    made = []
    for row, (spec, outcome, log) in enumerate(zip(specs, outcomes, write_logs(traces, outcomes), strict=True)):
        path = folder / f"{log.name}.jsonl"
        path.write_bytes(log.content)
        made.append(Made(spec, row, traces, outcome, log, lines_of(log.content), read_log(path)))
    return made


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> list[Made]:
    return [made for name in ARCHITECTURES for made in _make(_batch(name), tmp_path_factory.mktemp(name))]


def _steps_of_records(made: Made, key: str) -> list[np.ndarray]:
    """The steps of each record."""
    values = getattr(made.traces, key)[made.row]
    edges = [0, *(record["step"] for record in made.records)]
    return [values[first:last] for first, last in itertools.pairwise(edges)]


def _compare(made: Made, field: str, expected: list[float]) -> None:
    """A logged field against its recomputation, in the last digit of the log."""
    for record, value in zip(made.records, expected, strict=True):
        if math.isfinite(value):
            assert record[field] == pytest.approx(value, rel=6e-7, abs=1e-300), (made.log.name, field, record["step"])
        else:
            assert field not in record
            assert field in record["non_finite"]


# --- the study that is tested holds all there can be -----------------------------------------------------------------


def test_the_logs_under_test_hold_every_kind_of_end(study: list[Made]) -> None:
    assert {made.outcome.kind for made in study} >= {"failed", "recovered", "clean"}
    assert {made.outcome.reason for made in study} == {None, "NAN_LOSS", "WORKER_LOST", "DIVERGED"}
    assert sum(made.end % LOG_EVERY != 0 for made in study) > len(study) // 2
    assert any("non_finite" in record for made in study for record in made.records)
    assert any(made.log.alerts for made in study)


# --- form ------------------------------------------------------------------------------------------------------------


def test_a_chunk_is_what_a_reader_makes_of_the_content(study: list[Made]) -> None:
    assert {made.outcome.kind for made in study} >= {"failed", "recovered", "clean"}
    for made in study:
        (read,) = chunks(enumerate(made.events), strict(made.log.name), size=2**62)
        ours = made.log.chunk()
        assert list(ours.columns) == list(read.columns)
        assert [bits(values) for values in ours.columns.values()] == [bits(values) for values in read.columns.values()]
        assert (ours.step.tolist(), ours.events, ours.alerts) == (read.step.tolist(), read.events, read.alerts)


def test_a_log_begins_with_its_config_and_ends_with_its_outcome(study: list[Made]) -> None:
    for made in study:
        kinds = [event["event"] for event in made.events]
        assert kinds[0] == "EXPERIMENT_START"
        assert kinds.count("EXPERIMENT_START") == 1
        ends = [kind for kind in kinds if kind in ("EXPERIMENT_FAILURE", "EXPERIMENT_SUCCESS")]
        assert ends == [kinds[-1]]
        assert made.log.content.endswith(b"}\n")
        if made.outcome.kind == "failed":
            assert made.events[-1] == {
                "event": "EXPERIMENT_FAILURE", "step": made.outcome.failure_step, "reason": made.outcome.reason,
            }  # fmt: skip
        else:
            assert made.events[-1] == {"event": "EXPERIMENT_SUCCESS", "step": STEPS, "outcome": made.outcome.kind}


def test_steps_increase_and_nothing_happens_after_the_end(study: list[Made]) -> None:
    for made in study:
        steps = [event["step"] for event in made.events[1:]]
        assert steps == sorted(steps)
        assert steps[-1] == made.end
        assert all(isinstance(step, int) and step >= 1 for step in steps)


def test_records_lie_on_the_grid_and_the_last_one_at_the_end(study: list[Made]) -> None:
    for made in study:
        steps = [record["step"] for record in made.records]
        grid = list(range(LOG_EVERY, made.end + 1, LOG_EVERY))
        assert steps == (grid if made.end % LOG_EVERY == 0 else [*grid, made.end])
        assert made.log.records == len(steps)


def test_a_record_has_the_authors_fields(study: list[Made]) -> None:
    for made in study:
        for record in made.records:
            missing = AUTHORS_FIELDS - set(record) - set(record.get("non_finite", []))
            early = {"validation_loss"} if record["step"] < EVAL_EVERY else set()
            assert missing == early
            assert ("failed_experts" in record) == bool(made.spec.profile.experts)
            assert ("router_imbalance_factor" in record) == bool(made.spec.profile.experts)


def test_the_config_says_all_that_the_run_hangs_on(study: list[Made]) -> None:
    for made in study:
        config = made.events[0]["config"]
        spec, profile = made.spec, made.spec.profile
        fault = spec.make_fault()
        assert config["fault_injection"] == {
            "type": spec.fault,
            "severity": None if spec.is_control else spec.severity,
            "trigger_step": made.traces.onset[made.row],
            "params": json.loads(json.dumps(fault.parameters)) if fault else {},
        }
        assert config["r_metric_weights"] == {"w1_lambda": 0.1, "w2_sigma_sq": 0.45, "w3_delta_l": 0.7}
        assert config["alert_thresholds"] == {"r_metric": 0.57, "loss_spike": 3.0, "grad_norm": 100.0}
        plain = {
            "experiment_id": spec.experiment_id, "model_type": profile.model_type, "architecture": spec.architecture,
            "seed": spec.seed, "repetition": spec.repetition, "num_workers": 8, "total_training_steps": STEPS,
            "eval_every_n_steps": EVAL_EVERY, "log_every_n_steps": LOG_EVERY, "backend": "simulator",
            "schema_version": 4,
        }  # fmt: skip
        assert {key: config[key] for key in plain} == plain


@pytest.mark.slow
def test_nothing_hangs_on_clock_path_host_or_process(tmp_path: Path) -> None:
    program = (
        "import hashlib\n"
        "from rmetric.simulation import run_batch\n"
        "from rmetric.simulation import RunSpec\n"
        "faults = ('LR_SPIKE', 'NODE_FAILURE', 'NONE')\n"
        "specs = [RunSpec(architecture='gpt-4-moe', fault=fault, seed=3, steps=400) for fault in faults]\n"
        "print(hashlib.sha256(b''.join(log.content for log in run_batch(specs))).hexdigest())"
    )
    places = []
    for number, changes in enumerate(
        ({"TZ": "UTC", "PYTHONHASHSEED": "1"}, {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "2", "HOSTNAME": "x"})
    ):
        place = tmp_path / str(number)
        place.mkdir()
        env = {**os.environ, "HOME": str(place), "USER": f"user{number}", "LC_ALL": "C", **changes}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=place, env=env
        )
        places.append(done.stdout)
        assert not any(place.iterdir())
    assert places[0] == places[1]
    assert len(places[0].strip()) == len(hashlib.sha256().hexdigest())


def test_no_log_names_the_machine_or_the_time(study: list[Made]) -> None:
    words = [
        platform.node(),
        str(Path.cwd()),
        str(Path.home()),
        f'"{getpass.getuser()}"',
        "timestamp",
        '"time"',
        "_utc",
    ]
    for made in study:
        text = made.log.content.decode()
        assert [word for word in words if len(word) > 3 and word in text] == []


# --- records are the right summaries of their steps ------------------------------------------------------------------


SUMMARIES = {"mean": lambda steps: math.fsum(steps) / len(steps), "max": max, "last": lambda steps: steps[-1]}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["training_loss", "step_time_s", "step_time_max_s", "grad_norm", "sigma_sq", "update_rms", "learning_rate"],
)
def test_a_record_merges_its_steps_as_the_catalogue_says(study: list[Made], name: str) -> None:
    measurement = MEASUREMENTS[name]
    merge = SUMMARIES[measurement.merge]
    for made in study:
        steps = _steps_of_records(made, measurement.source or name)
        _compare(made, name, [merge(of.tolist()) if np.isfinite(of).all() else math.inf for of in steps])


def test_non_finite_values_are_counted_and_zero_is_left_out(study: list[Made]) -> None:
    for made in study:
        for record, steps in zip(made.records, _steps_of_records(made, "non_finite_count"), strict=True):
            assert record.get("non_finite_count", 0.0) == steps.sum()
            assert record["is_nan"] == (not np.isfinite(made.traces.training_loss[made.row, record["step"] - 1]))


def test_a_record_holds_the_latest_validation_loss(study: list[Made]) -> None:
    for made in study:
        evaluations = to_log_precision(made.traces.validation_loss[made.row])
        for record in made.records:
            done = record["step"] // EVAL_EVERY
            if done and np.isfinite(evaluations[done - 1]):
                assert record["validation_loss"] == evaluations[done - 1]
            else:
                assert "validation_loss" not in record
                assert ("validation_loss" in record.get("non_finite", [])) == bool(done)


def test_every_number_has_at_most_7_significant_digits(study: list[Made]) -> None:
    for made in study:
        for event in made.events[1:]:
            numbers = [value for value in event.values() if isinstance(value, float)]
            assert numbers == to_log_precision(numbers).tolist()


# --- what the log says of itself can be recomputed from it -----------------------------------------------------------


def _check_lambda(made: Made) -> int:
    rate, expected, seen = HardwareFailureRate(), [], 0
    for event in made.events:
        if event["event"] == "HARDWARE_EVENT":
            rate.update(event["time_s"])
            seen += 1
        elif event["event"] == "METRICS":
            expected.append(float(to_log_precision(rate.value)))
    assert [record["lambda"] for record in made.records] == expected
    return seen


def test_lambda_can_be_recomputed_from_the_hardware_events(study: list[Made]) -> None:
    assert sum(_check_lambda(made) for made in study) > 100


def test_lambda_can_be_recomputed_where_times_have_more_digits_than_the_log(tmp_path: Path) -> None:
    shape = {"architecture": "llama-3-8b", "fault": "NETWORK_DEGRADATION", "severity": "medium", "steps": 4000}
    specs = [RunSpec(seed=seed, number=seed, onset=100, **shape) for seed in range(8)]  # type: ignore[arg-type]
    assert sum(_check_lambda(made) for made in _make(specs, tmp_path)) > 200


def test_drift_can_be_recomputed_from_the_validation_losses(study: list[Made]) -> None:
    for made in study:
        drift, latest = ValidationDrift(), math.nan
        for record in made.records:
            if record["step"] % EVAL_EVERY == 0:
                latest = float(to_log_precision(drift.update(record.get("validation_loss", math.nan))))
            if math.isnan(latest):
                assert "delta_l" not in record
                assert "delta_l" not in record.get("non_finite", [])
            elif math.isinf(latest):
                assert "delta_l" in record["non_finite"]
            else:
                assert record["delta_l"] == latest


def test_the_alerts_of_a_log_are_those_of_replaying_it(study: list[Made]) -> None:
    for made in study:
        replayed = {}
        for name, detector in online_detectors().items():
            scores = detector.score_run(made.run.observations)
            step = first_alert(made.run.observations.step, scores, detector.threshold)
            if step is not None:
                replayed[name] = step
        assert made.run.alerts == made.log.alerts == replayed
        for record in made.records:
            assert record["alerts"] == {name: at for name, at in replayed.items() if at <= record["step"]}
        announced = [event for event in made.events if event["event"] == "ALERT"]
        assert {event["detector"]: event["step"] for event in announced} == replayed
        assert len(announced) == len(replayed)


def test_an_alert_announces_the_score_of_its_record(study: list[Made]) -> None:
    alerts = [(made.run, event) for made in study for event in made.events if event["event"] == "ALERT"]
    assert {"score" in event for _, event in alerts} == {True, False}
    for run, event in alerts:
        detector = online_detectors()[event["detector"]]
        score = float(detector.score_run(run.observations)[run.observations.step == event["step"]][0])
        if math.isfinite(score):
            assert event["score"] == float(to_log_precision(score))
            assert event["score"] > detector.threshold
        else:
            assert event["non_finite"] == ["score"]


def test_r_and_its_parts_are_those_of_replaying_the_log(study: list[Made]) -> None:
    for made in study:
        detector = online_detectors()["r_metric"]
        explained = detector.extend_explained(made.run.observations)  # type: ignore[attr-defined]
        for name, values in zip(("r_metric", "lambda_norm", "sigma_sq_norm", "delta_l_norm"), explained, strict=True):
            assert made.run.verdicts[name].tolist() == to_log_precision(values).tolist(), name


# --- events ----------------------------------------------------------------------------------------------------------


def test_the_fault_is_announced_at_its_onset_and_its_clearing(study: list[Made]) -> None:
    for made in study:
        onset, cleared = made.traces.onset[made.row], made.traces.cleared[made.row]
        injected = [(event["step"], event["fault"]) for event in made.events if event["event"] == "FAULT_INJECTED"]
        assert injected == ([(onset, made.spec.fault)] if onset is not None and onset <= made.end else [])
        lifted = [event["step"] for event in made.events if event["event"] == "FAULT_CLEARED"]
        assert lifted == ([cleared] if cleared is not None and cleared <= made.end else [])
        assert made.run.onset == onset


def test_hardware_events_are_those_of_the_run_until_its_end(study: list[Made]) -> None:
    for made in study:
        logged = [event for event in made.events if event["event"] == "HARDWARE_EVENT"]
        happened = [event for event in made.traces.hardware[made.row] if event.step <= made.end]
        assert [(event["step"], event["component"], event["worker"], event["kind"]) for event in logged] == [
            (event.step, event.component, event.worker, event.kind) for event in happened
        ]
        time_s = np.cumsum(made.traces.step_time_s[made.row])
        for event in logged:
            assert event["time_s"] == pytest.approx(time_s[event["step"] - 1], rel=6e-7)


def test_an_event_stands_before_the_record_of_its_step_and_an_alert_after_it(study: list[Made]) -> None:
    order = {"HARDWARE_EVENT": 0, "FAULT_INJECTED": 0, "FAULT_CLEARED": 0, "METRICS": 1, "ALERT": 2}
    for made in study:
        places = [(event["step"], order[event["event"]]) for event in made.events[1:-1]]
        assert places == sorted(places)


def test_workers_are_active_until_they_are_lost(study: list[Made]) -> None:
    for made in study:
        lost_at, lost = made.traces.worker_lost_step[made.row], int(made.traces.lost_worker[made.row])
        for record in made.records:
            gone = [lost] if lost_at is not None and record["step"] >= lost_at else []
            assert record["active_workers"] == [worker for worker in range(8) if worker not in gone]
            stopped = made.outcome.reason in ("NAN_LOSS", "WORKER_LOST")
            assert record["is_crashed"] == (stopped and record["step"] == made.end)


# --- cadence ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("log_every", "eval_every"), [(1, 100), (100, 100), (7, 30), (400, 50), (100, 500)])
def test_any_cadence_gives_a_consistent_log(tmp_path: Path, log_every: int, eval_every: int) -> None:
    shape = {"architecture": "llama-3-8b", "seed": 11, "steps": 400, "log_every": log_every, "eval_every": eval_every}
    specs = [
        RunSpec(fault="LR_SPIKE", severity="high", name="a", **shape),  # type: ignore[arg-type]
        RunSpec(fault="NODE_FAILURE", severity="high", name="b", **shape),  # type: ignore[arg-type]
        RunSpec(name="c", **shape),  # type: ignore[arg-type]
    ]
    for made in _make(specs, tmp_path):
        end = made.outcome.failure_step or 400
        steps = [record["step"] for record in made.records]
        assert steps == sorted({*range(log_every, end + 1, log_every), end})
        losses = [math.fsum(part) / len(part) for part in _steps_of_records(made, "training_loss")]
        for record, loss in zip(made.records, losses, strict=True):
            if math.isfinite(loss):
                assert record["training_loss"] == pytest.approx(loss, rel=6e-7)
            assert ("validation_loss" in {*record, *record.get("non_finite", [])}) == (record["step"] >= eval_every)
        assert made.run.alerts == made.log.alerts


def test_an_evaluation_of_a_broken_model_is_named_and_not_written(tmp_path: Path) -> None:
    shape = {"architecture": "llama-3-8b", "fault": "SILENT_DATA_CORRUPTION", "severity": "high", "steps": 600}
    specs = [RunSpec(seed=seed, number=seed, log_every=5, eval_every=1, **shape) for seed in range(40)]  # type: ignore[arg-type]
    broken = [made for made in _make(specs, tmp_path) if made.outcome.reason == "NAN_LOSS"]
    assert len(broken) > 3
    for made in broken:
        last, before = made.records[-1], made.records[-2]
        assert set(last["non_finite"]) >= {"training_loss", "validation_loss", "delta_l", "grad_norm", "sigma_sq"}
        assert last["delta_l_norm"] == last["sigma_sq_norm"] == 1.0
        assert last["r_metric"] >= 1.15
        assert last["is_nan"] is True
        assert last["non_finite_count"] >= 1.0  # the loss, and the gradient where that broke too
        assert "non_finite" not in before


def test_the_cadence_of_the_log_does_not_change_the_run() -> None:
    spec = RunSpec(architecture="llama-3-8b", fault="GQA_MISMATCH", seed=2, steps=400)
    fine, coarse = (TrainingSimulator().simulate([replace(spec, log_every=every)]) for every in (1, 100))
    assert np.array_equal(fine.training_loss, coarse.training_loss)
    assert np.array_equal(fine.held_out, coarse.held_out)
    assert fine.hardware == coarse.hardware
