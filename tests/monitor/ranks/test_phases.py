"""Where a process is in its step, in one process; what several do is in the tests beside this one."""

from __future__ import annotations

import copy
import io
import time

import torch

from rmetric.monitor.ranks.phases import PhaseClock
from rmetric.monitor.ranks.stopwatch import HostStopwatch
from tests.monitor.common import small_loss, small_training


def test_a_copy_and_a_file_of_the_model_do_not_drive_its_clock() -> None:
    model, optimizer = small_training()
    clock = PhaseClock(model, optimizer, HostStopwatch(time.perf_counter))
    file = io.BytesIO()
    torch.save(model, file)
    begin = clock.place
    for twin in (copy.deepcopy(model), torch.load(io.BytesIO(file.getvalue()), weights_only=False)):
        small_loss(twin, 0).backward()
    assert clock.place is begin
    small_loss(model, 0)
    assert clock.place is not begin
