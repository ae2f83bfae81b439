"""Runs of several processes: a twin and a bugged run in earnest, and an end on which the processes agree."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rmetric.faults import make_fault  # noqa: E402
from rmetric.log_reader import read_log  # noqa: E402
from rmetric.measurements import MEASUREMENTS  # noqa: E402
from rmetric.twins.group import Branch  # noqa: E402
from rmetric.twins.recording import log_config  # noqa: E402
from studies.zoo.distributed import record_processes  # noqa: E402
from studies.zoo.kinds.ddp_mlp import DdpMlp  # noqa: E402
from studies.zoo.plan import ZooPlan, ZooSpec  # noqa: E402
from studies.zoo.run import record_here  # noqa: E402
from studies.zoo.training import Examples, KindRun  # noqa: E402

PLAN = ZooPlan(kinds=("ddp_mlp",), seeds=(0,), steps=40, eval_every=10)
ONSET, POISONED = 15, 12
CLOCK = {"step_time_s", "lambda"}


@dataclass(frozen=True, kw_only=True)
class Poisoned(DdpMlp):
    """In one step the second process alone gets what is no number."""

    def batch(self, rng: np.random.Generator, step: int) -> Examples:
        batch = super().batch(rng, step)
        if step == POISONED:
            batch.inputs[self.config.rows // 2 :] = torch.nan
        return batch


def config(run: KindRun) -> dict[str, Any]:
    """As the log of a healthy run has it."""
    return log_config(run, {"experiment_id": "poisoned"})


def test_a_run_of_several_processes_is_not_disturbed() -> None:
    assert [spec.onset for spec in PLAN.specs()] == [None]
    fork = Branch(name="fork", config=config, onset=3, change=lambda run: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="without benign changes"):
        next(record_processes(DdpMlp(), 0, PLAN, [fork], Path()))


@pytest.mark.long
def test_a_bugged_run_is_its_twin_up_to_the_onset_and_is_judged_against_it(tmp_path: Path) -> None:
    specs = [ZooSpec(kind="ddp_mlp", seed=0), ZooSpec(kind="ddp_mlp", seed=0, fault="LARGE_LR", onset=ONSET)]
    finished = list(record_here(PLAN, specs, tmp_path, ()))
    assert [item.records for item in finished] == [40, 40]
    twin, bugged = (read_log(tmp_path / f"{spec.experiment_id}.jsonl") for spec in specs)
    for name in {*MEASUREMENTS} - CLOCK:
        mine, other = bugged.observations[name], twin.observations[name]
        np.testing.assert_array_equal(mine[: ONSET - 1], other[: ONSET - 1], err_msg=name)
    losses = [run.observations["training_loss"][ONSET:] for run in (twin, bugged)]
    assert (losses[0] != losses[1]).all()
    assert bugged.onset == ONSET
    assert (twin.config["processes"], twin.config["num_workers"]) == (2, 2)
    log = (tmp_path / f"{specs[0].experiment_id}.jsonl").read_text()
    assert '"signal":"sigma_sq","source":"workers"' in log
    assert log.count('"event":"HELD_OUT"') == 1


@pytest.mark.long
def test_all_processes_end_where_the_loss_of_one_is_not_finite(tmp_path: Path) -> None:
    bugged = Branch(name="bugged", config=config, onset=2, fault=make_fault("LARGE_LR"))
    (recorded,) = record_processes(Poisoned(), 0, PLAN, [bugged], tmp_path)
    assert recorded.judgement.outcome.failure_step == POISONED
    assert sum('"event":"METRICS"' in line for line in recorded.log.read_text().splitlines()) == POISONED
