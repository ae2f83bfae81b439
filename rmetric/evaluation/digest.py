"""What was fitted to which runs: a checksum of the runs, whatever file they were read from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rmetric.records import MEASUREMENTS, Run


def digest(runs: Sequence[Run]) -> str:
    """SHA-256 of what the runs say: 64 hexadecimal digits; the order of the runs does not matter."""
    whole = hashlib.sha256()
    for run in sorted(runs, key=lambda item: item.name):
        facts: Mapping[str, Any] = {"name": run.name, "config": run.config, "terminal": run.terminal}
        whole.update(json.dumps(facts, sort_keys=True, default=str).encode())
        whole.update(run.observations.step.tobytes())
        for name in MEASUREMENTS:
            whole.update(run.observations[name].tobytes())
    return whole.hexdigest()
