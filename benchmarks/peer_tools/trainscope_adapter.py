"""trainscope: a ``TrainScope`` that records the run, ``trainscope report --run FOLDER`` on what it recorded.

It has no reader of other people's logs. It is attached to a stand-in for the run: one parameter, whose gradient is set
to the logged gradient norm before each step and whose optimizer has the logged learning rate. Loss, gradient norm and
learning rate are then recorded as in a run; what a log does not hold (activations, routing) is not recorded.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from peer_worker import Adapter, Finding, Growing, serve

SIGNAL, EXPLOSION = "signal", "explosion"
"""``signal``: an early-warning signal fired; without one the report says "stable run". ``explosion``: that, or the loss
exploded by the report's own definition (not finite, or ten times the mean of the first 40)."""


class Trainscope(Adapter):
    """``TrainScope.step`` for every record, ``build_report`` behind the command ``report``."""

    package = "trainscope"
    alarms = (SIGNAL, EXPLOSION)

    def __init__(self) -> None:
        import torch
        from trainscope import TrainScope, report
        from trainscope.core.config import TrainScopeConfig

        torch.set_num_threads(1)
        logging.getLogger("trainscope").setLevel(logging.ERROR)  # it logs every loss that is not finite
        self.torch, self.scope, self.settings, self.report = torch, TrainScope, TrainScopeConfig, report.build_report

    def findings(self, log: Path) -> list[Finding]:
        lines = log.read_text(encoding="utf-8").splitlines()
        steps = [json.loads(line)["step"] for line in lines]
        with tempfile.TemporaryDirectory() as folder:
            for _ in self._recorded(lines, folder):
                pass
            signature = asyncio.run(self.report(Path(folder) / "run", False))["signal_signature"]
        # trainscope counts steps from 0 as they come; the log has numbers of its own
        found = [Finding(name, self.alarms, (steps[at],)) for name, at in signature["first_steps"].items()]
        if signature["explosion_step"] is not None:
            found.append(Finding("explosion", (EXPLOSION,), (steps[signature["explosion_step"]],)))
        return found

    def live(self, growing: Growing) -> dict[str, list[int]]:
        """Steps at which ``step`` returns a spike, the moment at which its alert backends are called."""
        with tempfile.TemporaryDirectory() as folder:
            lines = (line for new in growing for line in new)
            return {SIGNAL: [step for step, spike in self._recorded(lines, folder) if spike is not None]}

    def _recorded(self, lines: Iterable[str], folder: str) -> Iterator[tuple[int, dict[str, Any] | None]]:
        """Step and what TrainScope says at it, record by record."""
        model = self.torch.nn.Linear(1, 1, bias=False, dtype=self.torch.float64)  # a norm may exceed single precision
        optimizer = self.torch.optim.SGD(model.parameters(), lr=1.0)
        scope = self.scope(model, optimizer, self.settings(run_dir=folder, run_name="run")).attach()
        try:
            for line in lines:
                record = json.loads(line)
                norm, rate = record.get("grad_norm"), record.get("learning_rate", math.nan)
                model.weight.grad = None if norm is None else self.torch.full_like(model.weight, norm)
                optimizer.param_groups[0]["lr"] = rate
                yield record["step"], scope.step(record.get("loss", math.nan))
        finally:
            scope.detach()


if __name__ == "__main__":
    serve(Trainscope, Trainscope.package)
