"""Processes that send what they make as they make it, and processes of a group."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

from studies.processes import each_from_fresh_processes, join_gloo_group
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


def first_and_second(folder: Path, name: str) -> Iterator[str]:
    """Two things, of which the second comes when somebody has received the first."""
    yield f"{name} 1"
    received, patience_s = folder / f"{name} 1", 60.0
    while not received.exists():
        time.sleep(0.05)
        patience_s -= 0.05
        assert patience_s > 0, "nobody received the first"
    yield f"{name} 2"


def test_what_a_process_makes_comes_before_it_has_made_all(tmp_path: Path) -> None:
    came = []
    for item in each_from_fresh_processes(first_and_second, [(tmp_path, "a"), (tmp_path, "b"), (tmp_path, "c")], 2):
        came.append(item)
        (tmp_path / item).touch()
    assert sorted(came) == [f"{name} {number}" for name in "abc" for number in (1, 2)]


def failing_later() -> Iterator[int]:
    yield 1
    raise OSError("the disk is full")


def test_what_came_before_an_error_is_not_lost() -> None:
    items = each_from_fresh_processes(failing_later, [()], 1)
    assert next(items) == 1
    with pytest.raises(OSError, match="full"):
        next(items)
