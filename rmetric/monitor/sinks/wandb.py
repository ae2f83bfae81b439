"""Show a run in Weights & Biases, offline: files that ``wandb sync`` sends when and where the user wants."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmetric.monitor.sinks.base import Sink, optional_module, points, sentence


class WandbSink(Sink):
    """Logs ``rmetric/<field of the log>`` at the run's own steps, and an alert for each alert.

    It makes an offline run of its own: nothing goes over the network, nobody is asked to log in, neither code nor
    output is copied, and a training that logs to Weights & Biases by itself is not disturbed. A resumed run is a second
    offline run under the same id; ``wandb sync --append`` joins the two.

    Parameters
    ----------
    project, name
        As Weights & Biases shows them; without a name, the run's ``experiment_id``.
    folder
        Where the files go; made if there is none.

    Raises
    ------
    UserError
        Weights & Biases is not installed.
    """

    def __init__(
        self, project: str = "rmetric", *, name: str | None = None, folder: str | os.PathLike[str] = "."
    ) -> None:
        self._wandb = optional_module("wandb", "Weights & Biases")
        self._project, self._name, self._folder = project, name, Path(folder)
        self._id: str | None = None
        self._run: Any = None
        self._succeeded = False

    def __str__(self) -> str:
        return f"Weights & Biases in {self._folder}"

    def start(self, config: Mapping[str, Any], *, resume_step: int | None) -> None:
        """Begin an offline run."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._run = self._wandb.init(
            project=self._project,
            name=self._name or config.get("experiment_id"),
            id=self._id,
            mode="offline",
            dir=str(self._folder),
            config=dict(config),
            reinit="create_new",
            settings=self._wandb.Settings(silent=True, console="off", disable_code=True, disable_git=True),
        )
        self._id = self._run.id

    def event(self, event: Mapping[str, Any]) -> None:
        """Log the numbers of a record; send an alert; note how the run ended. Other events stay in the log alone."""
        kind = event.get("event")
        numbers = {f"rmetric/{name}": value for name, value in points(event).items()}
        if numbers:
            self._run.log(numbers, step=event["step"])
        elif kind == "ALERT":
            self._run.alert(title=f"R-Metric: {event.get('detector')}", text=sentence(event))
        self._succeeded = kind == "EXPERIMENT_SUCCESS"

    def close(self) -> None:
        """End the run: as finished after EXPERIMENT_SUCCESS, else as failed."""
        if self._run is not None:
            run, self._run = self._run, None
            run.finish(exit_code=0 if self._succeeded else 1)

    def state_dict(self) -> dict[str, Any]:
        """The run's id."""
        return {"id": self._id}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on under the same id."""
        self._id = state.get("id") or self._id
