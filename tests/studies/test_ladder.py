"""The author's conditions, and what the paper's R-Metric scores without them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rmetric.evaluation.scores import Score
from rmetric.simulation import Conditions, RunSpec, TrainingSimulator, run_batch
from rmetric.simulation.conditions import CRASH_STEPS
from run_modern_experiments import main as run_study
from studies.ladder.figure import figure
from studies.ladder.run import caption_of, main, results, simulated
from studies.ladder.rungs import ALONE, CONDITIONS, Result, rungs
from studies.paper.plan import AS_PUBLISHED, PublishedPlan
from tests.helpers import ROOT

FEW = {"repetitions": 1, "severities": ("medium",), "controls": 6}


def test_a_fault_crashes_its_run_within_the_steps_of_the_authors_files():
    specs = [
        RunSpec(architecture="llama-3-8b", fault=fault, onset=500, steps=600, seed=seed, conditions=AS_PUBLISHED)
        for fault in ("DATA_CORRUPTION", "LR_SPIKE")
        for seed in range(20)
    ]
    logs = run_batch(specs)
    waits = {log.outcome.failure_step - 500 for log in logs}
    assert {log.outcome.reason for log in logs} == {"NAN_LOSS"}
    assert min(waits) >= CRASH_STEPS[0]
    assert max(waits) <= CRASH_STEPS[1]
    assert len(waits) > 5  # not one number for all


def test_node_failures_do_nothing_there():
    spec = RunSpec(architecture="llama-3-8b", fault="NODE_FAILURE", onset=500, steps=600, conditions=AS_PUBLISHED)
    assert [log.outcome.kind for log in run_batch([spec])] == ["recovered"]


def test_the_loss_falls_at_one_rate_without_disturbances():
    spec = RunSpec(architecture="mistral-7b", steps=5000, conditions=AS_PUBLISHED)
    loss = TrainingSimulator().simulate([spec]).held_out[0] - spec.profile.irreducible_loss
    rates = -np.diff(np.log(loss[::500])) / 500.0  # a step's own jitter averages out
    assert np.allclose(rates, 3e-4, rtol=0.05)


def test_runs_under_other_conditions_are_not_simulated_together():
    spec = RunSpec(architecture="mistral-7b", steps=100)
    with pytest.raises(ValueError, match="together"):
        TrainingSimulator().simulate([spec, replace(spec, conditions=Conditions(steady_loss=True))])


def test_the_log_says_which_conditions_are_the_authors():
    specs = PublishedPlan(**FEW).specs()
    assert {spec.onset for spec in specs} == {2500, None}
    assert (
        b'"as_published":["crash","steady_loss","no_disturbances","exact_evaluation"]'
        in run_batch(specs[:1])[0].content
    )
    assert b"as_published" not in run_batch([RunSpec(architecture="mistral-7b", steps=100)])[0].content


def test_each_condition_is_given_up_after_those_before_it_and_alone():
    found = list(rungs(**FEW))
    down = [rung for rung in found if not rung.alone]
    assert [rung.key for rung in down] == [str(number) for number in range(len(CONDITIONS) + 1)]
    assert down[-1].plan.conditions == Conditions()
    assert down[-1].protocol == "strict"
    assert [rung.key for rung in found if rung.alone] == [
        f"{ALONE}{number}" for number in range(2, len(CONDITIONS) + 1)
    ]


def test_the_papers_score_appears_under_the_authors_conditions_and_is_gone_off_the_grid():
    start, off_grid = (next(rung for rung in rungs(**FEW) if rung.key == key) for key in ("0", f"{ALONE}4"))
    assert off_grid.plan.onset is None
    assert simulated(start, 1)["f1"].value >= 0.97
    assert simulated(off_grid, 1)["f1"].value < 0.6


def test_as_published_from_the_command_line(tmp_path, capsys):
    run_study(["--as-published", "--smoke", "--out", str(tmp_path / "logs")])
    assert "36 runs" in capsys.readouterr().out
    assert run_study(["--as-published", "--backend", "torch", "--out", str(tmp_path / "other")]) == 2
    assert "--backend torch" in capsys.readouterr().err


def test_the_caption_counts_the_runs_that_were_scored_and_the_false_alarms(tmp_path, monkeypatch):
    nothing = {"f1": Score.undefined("not scored"), "false_alarms_per_1000": Score(4.0)}
    monkeypatch.setattr("studies.ladder.run.simulated", lambda *_: nothing)
    monkeypatch.setattr("studies.ladder.run.scores_of", lambda *_: nothing)
    data = ROOT / "data/real_runs_transfer.parquet"
    found = list(results(data, 1, **FEW))
    assert "Rungs 0 to 7 are 42 simulated runs each; rung 8 the 132 real runs; rung 9 the 66 of" in caption_of(found)
    assert found[-2].title == "132 real runs"
    assert "beside one false alarm in 250 healthy steps." in found[-2].takes_away


def test_a_rung_that_scores_0_alone_is_drawn_whole():
    rung = Result("key", "title", "", {"f1": Score(0.5)}, 1, alone=Score(0.0))
    (alone,) = (line for line in figure([rung] * 3).axes[0].get_lines() if line.get_label() == "with this alone")
    assert not alone.get_clip_on()


@pytest.mark.long
def test_the_ladder_is_written_as_table_and_figure(tmp_path):
    data = ROOT / "data/real_runs.parquet"
    main(["--repetitions", "1", "--jobs", "1", "--data", str(data), "--out", str(tmp_path)])
    table = pd.read_csv(tmp_path / "ladder.csv")
    assert len(table) == len(CONDITIONS) + 3
    assert table["f1"].iloc[0] >= 0.97
    assert table["f1"].iloc[-3] < 0.1
    assert (tmp_path / "figure_ladder.png").stat().st_size > 10_000


def test_missing_real_runs_are_told_before_anything_is_simulated(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("studies.ladder.run.simulated", lambda *_: pytest.fail("simulated"))
    assert main(["--data", str(tmp_path / "none.parquet"), "--out", str(tmp_path)]) == 2
    assert "none.parquet does not exist" in capsys.readouterr().err
