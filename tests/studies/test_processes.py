"""Processes of a group."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

from studies.processes import join_gloo_group
from tests.live.processes import needs_gloo


@needs_gloo
@pytest.mark.parametrize(("system", "device"), [("linux", "lo"), ("darwin", None)])
def test_a_group_meets_on_linux_through_the_device_that_every_linux_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, device: str | None
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")  # as it was before is how it will be again
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    monkeypatch.setattr(sys, "platform", system)
    join_gloo_group(tmp_path, rank=0, processes=1, timeout=timedelta(minutes=1))
    dist.destroy_process_group()
    assert os.environ.get("GLOO_SOCKET_IFNAME") == device
