"""Twins and forks of any live run: logs that share their healthy records, judged against the twin."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from rmetric.errors import UserError
from rmetric.evaluation.truth import truth_of
from rmetric.faults import make_fault
from rmetric.live.run import LiveRun
from rmetric.log_reader import read_log
from rmetric.twins.group import Branch, RecordedRun, record_group
from rmetric.twins.recording import fault_entry, judge_against, log_config
from rmetric.twins.snapshots import Snapshot, TruthRecord, train
from rmetric.twins.watching import monitor_of, watching
from tests.helpers import lines_of
from tests.live.live import make_live_run

ONSET = 9


@dataclass(frozen=True)
class Plan:
    """A schedule of a few steps."""

    steps: int = 70
    eval_every: int = 5
    judge_every: int = 5


@contextmanager
def half_rate(run: LiveRun) -> Iterator[None]:
    """A benign change: the learning rate is halved."""
    run.learning_rate_factor = 0.5
    yield
    run.learning_rate_factor = 1.0


def branch(name: str, fault: str | None = None, **fields: object) -> Branch:
    made = make_fault(fault, factor=3e4, duration_steps=0) if fault else None
    onset = fields.get("onset")

    def config(run: LiveRun) -> dict[str, object]:
        entry = fault_entry(made, "high", onset if isinstance(onset, int) else None)
        return log_config(run, {"experiment_id": name, "total_training_steps": 70, "fault_injection": entry})

    return Branch(name=name, config=config, fault=made, **fields)  # type: ignore[arg-type]


TWIN = branch("twin")
FORKS = [branch("broken", "LARGE_LR", onset=ONSET, details="begins"), branch("slower", onset=ONSET, change=half_rate)]
fresh_run = partial(make_live_run, rows=2, length=8, workers=2)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RecordedRun]:
    folder = tmp_path_factory.mktemp("group")
    monitor = partial(monitor_of, hardware=False)
    return {run.name: run for run in record_group(fresh_run, Plan(), [*FORKS, TWIN], folder, make_monitor=monitor)}


@pytest.mark.slow
def test_every_log_is_whole_and_says_how_the_run_ended(recorded: dict[str, RecordedRun]) -> None:
    assert [*recorded] == ["twin", "broken", "slower"]
    assert {path.name for path in recorded["twin"].log.parent.iterdir()} == {
        "twin.jsonl",
        "broken.jsonl",
        "slower.jsonl",
    }
    for run in recorded.values():
        truth, outcome = truth_of(read_log(run.log)), run.judgement.outcome
        assert (truth.kind, truth.failure_step) == (outcome.kind, outcome.failure_step)
    assert {name: run.judgement.outcome.kind for name, run in recorded.items() if name != "slower"} == {
        "twin": "clean",
        "broken": "failed",
    }
    broken = read_log(recorded["broken"].log)
    assert broken.onset == ONSET
    assert (broken.first("FAULT_INJECTED") or {})["details"] == "begins"


@pytest.mark.slow
def test_forks_share_the_healthy_records_of_the_twin(recorded: dict[str, RecordedRun]) -> None:
    losses = {name: read_log(run.log).observations["training_loss"] for name, run in recorded.items()}
    for name in ("broken", "slower"):
        # The record of the first disturbed step still holds the loss of weights that nothing has touched.
        assert losses[name][:ONSET].tolist() == losses["twin"][:ONSET].tolist()
        assert losses[name][ONSET] != losses["twin"][ONSET]


@pytest.mark.slow
def test_the_held_out_losses_of_run_and_twin_stand_in_the_log(recorded: dict[str, RecordedRun]) -> None:
    *_, held_out, _ = lines_of(recorded["slower"].log.read_bytes())
    assert held_out["event"] == "HELD_OUT"
    assert held_out["steps"] == [*range(5, 71, 5)]
    assert held_out["twin"] == [round(loss, 6) for loss in recorded["twin"].judgement.held_out]
    assert held_out["held_out"][0] == held_out["twin"][0] and held_out["held_out"][-1] != held_out["twin"][-1]


@pytest.mark.slow
def test_a_twin_that_nobody_asked_for_leaves_no_log(recorded: dict[str, RecordedRun], tmp_path: Path) -> None:
    monitor = partial(monitor_of, hardware=False)
    (broken,) = record_group(fresh_run, Plan(), FORKS[:1], tmp_path, make_monitor=monitor)
    assert [path.name for path in tmp_path.iterdir()] == ["broken.jsonl"]
    assert broken.judgement == recorded["broken"].judgement


@pytest.mark.slow
@pytest.mark.parametrize("early", [True, False])
def test_a_run_whose_log_was_deleted_is_no_finished_run(early: bool, tmp_path: Path) -> None:
    @contextmanager
    def deleting(run: LiveRun) -> Iterator[None]:
        if not early:
            yield
        for log in tmp_path.iterdir():
            log.unlink()
        if early:  # before the monitor opens it
            yield

    forks = [branch("slower", onset=ONSET, change=deleting)]
    with pytest.raises(UserError, match="was deleted by somebody else while it was written"):
        list(record_group(fresh_run, Plan(), forks, tmp_path, make_monitor=partial(monitor_of, hardware=False)))
    assert not [*tmp_path.iterdir()]


def test_a_snapshot_goes_to_another_process_and_back(tmp_path: Path) -> None:
    run, truth, log = fresh_run(), TruthRecord(), tmp_path / "log.jsonl"
    with watching(run, monitor_of(run, log, {}, hardware=False)) as monitor:
        assert [*train(Plan(), run, monitor, truth, until=6)] == [1, 2, 3, 4, 5, 6]
        snapshot = Snapshot.take(run, monitor, log, truth)
    back = Snapshot.unpacked(snapshot.packed())
    assert (back.log, back.truth.held_out) == (snapshot.log, truth.held_out)
    assert float(fresh_run().load_state_dict(back.run).train_step()) == float(run.train_step())


def test_steps_that_a_run_did_not_live_to_see_count_as_an_excess() -> None:
    twin = TruthRecord(dict.fromkeys(range(5, 101, 5), 2.0), last_step=100)
    own = TruthRecord({5: 2.0, 10: 2.0}, last_step=12, non_finite_step=12)
    outcome = judge_against(twin, own, faulty=True).outcome
    assert (outcome.kind, outcome.failure_step, outcome.reason) == ("failed", 12, "NAN_LOSS")
