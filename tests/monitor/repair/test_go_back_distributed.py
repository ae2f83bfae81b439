"""Going back under two real processes, of which one alone sees what is wrong in its data."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed as dist

from tests.live.processes import run_processes
from tests.monitor.repair.go_back_scenario import ONSET


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="needs Gloo")
def test_all_processes_go_back_to_the_same_checkpoint_and_stop_together(tmp_path: Path) -> None:
    ended = run_processes("tests.monitor.repair.go_back_scenario", "go_back", tmp_path, processes=2)
    assert [process.code for process in ended] == [0, 0], "\n".join(process.errors for process in ended)
    one, other = [process.found for process in ended]
    assert one == other  # repairs, verdicts and every weight
    repairs = one["passes"]["repairs"]
    assert {verdict for _, verdict, _ in repairs} == {"went_back"}
    assert all(to_step <= ONSET - 10 < ONSET < step for step, _, to_step in repairs)
    assert one["passes"]["stopped"] is None
    assert one["stays"]["repairs"][-1][1] == "gave_up"
    assert one["stays"]["stopped"] == one["stays"]["repairs"][-1][0]
