"""Where a process is in its step, in one process; what several do is in the tests beside this one."""

from __future__ import annotations

import copy
import io
import time

import numpy as np
import pytest
import torch

from rmetric.monitor.ranks.phases import PhaseClock
from rmetric.monitor.ranks.worker_times import INPUT
from tests.monitor.common import small_loss, small_training


def test_a_copy_and_a_file_of_the_model_do_not_drive_its_clock() -> None:
    model, optimizer = small_training()
    clock = PhaseClock(model, optimizer, time.perf_counter)
    file = io.BytesIO()
    torch.save(model, file)
    begin = clock.place
    for twin in (copy.deepcopy(model), torch.load(io.BytesIO(file.getvalue()), weights_only=False)):
        small_loss(twin, 0).backward()
    assert clock.place is begin
    small_loss(model, 0)
    assert clock.place is not begin


@pytest.mark.parametrize("how", ["evaluates", "leaves out", "pauses", "skips and leaves out"])
def test_a_phase_in_which_something_else_takes_place_is_not_measured(how: str) -> None:
    now = 0.0
    model, optimizer = small_training()
    clock = PhaseClock(model, optimizer, lambda: now)
    found = []
    for step in range(4):
        now += 2.0
        if step == 2 and how == "evaluates":
            with torch.no_grad():
                small_loss(model, 0)
            assert clock.place.phase == INPUT
        elif step == 2 and how == "pauses":
            with clock.paused():
                now += 8.0
        elif step == 2:
            clock.leave_out()
        now += 1.0  # the others are waited for
        small_loss(model, step).backward()
        found.append(clock.gradients_ready()[0])
        clock.step_ended(step + 1)
        if not (step == 1 and how.startswith("skips")):
            optimizer.step()
    assert np.isnan(found).tolist() == [True, False, True, False]
    assert found[1] == found[3] == 3.0
