"""How many processes may train at the same time."""

from __future__ import annotations

import os

import torch


def default_jobs(device: str) -> int:
    """One a core on a CPU; one on an accelerator, whose memory they would share.

    Parameters
    ----------
    device
        ``auto``, or what torch calls it.
    """
    on_cpu = device == "cpu" or (device == "auto" and not torch.cuda.is_available())
    return (os.cpu_count() or 1) if on_cpu else 1
