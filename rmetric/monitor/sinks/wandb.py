"""Show a run in Weights & Biases: in the run that is open, or in an offline one of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmetric.measurements import OWN_PREFIX, OWN_STEP
from rmetric.monitor.sinks.base import Sink, optional_module, points
from rmetric.records import SUCCESS
from rmetric.verdict import is_news


def _open_run() -> Any:
    """The run that this process has open (``wandb.init``); ``None`` if there is none, or nobody uses wandb."""
    return getattr(sys.modules.get("wandb"), "run", None)


class WandbAlerts(Sink):
    """Sends alerts and other news to the run that is open at that moment; without one, and without wandb, nothing."""

    def __str__(self) -> str:
        return "alerts of Weights & Biases"

    def event(self, event: Mapping[str, Any]) -> None:
        run = _open_run()
        if run is not None and is_news(event):
            send(run, event)


def send(run: Any, event: Mapping[str, Any]) -> None:
    """Send an event with a message as an alert of a run."""
    about = event.get("detector") or str(event["event"]).lower()
    run.alert(title=f"R-Metric: {about}"[:63], text=str(event["message"]), level="WARN", wait_duration=0)


class WandbSink(Sink):
    """Logs ``rmetric/<field of the log>`` over ``rmetric/step``, and an alert for each alert of the monitor.

    **Into the run that is open** when the monitor makes its first step (``wandb.init``): the numbers go along with what
    the training logs by itself, at the training's own pace, and never move that run's step: of the records between two
    of the training's own ``log`` calls the last one stays. The run stays the training's to finish.

    **Without one**, into an offline run of its own, a row a record, which an evaluation after it joins: nothing goes
    over the network, nobody is asked to log in, neither code nor output is copied. A resumed run is a second offline
    run under the same id; ``wandb sync --append`` joins the two.

    Parameters
    ----------
    project, name
        Of the offline run; without a name, the run's ``experiment_id``.
    folder
        Where its files go; made if there is none.

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
        self._own = False
        self._succeeded = False

    def __str__(self) -> str:
        return f"Weights & Biases in {self._folder}"

    def start(self, config: Mapping[str, Any], *, resume_step: int | None) -> None:
        """Join the run that is open, or begin an offline one."""
        self._run = _open_run()
        self._own = self._run is None
        if self._own:
            self._run = self._begin(config)
            self._id = self._run.id
        self._run.define_metric(f"{OWN_PREFIX}*", step_metric=OWN_STEP)

    def _begin(self, config: Mapping[str, Any]) -> Any:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._wandb.init(
            project=self._project,
            name=self._name or config.get("experiment_id"),
            id=self._id,
            mode="offline",
            dir=str(self._folder),
            config=dict(config),
            reinit="create_new",
            settings=self._wandb.Settings(silent=True, console="off", disable_code=True, disable_git=True),
        )

    def event(self, event: Mapping[str, Any]) -> None:
        """Log the numbers of a record; send what is news; note how the run ended. Other events stay in the log."""
        kind = event.get("event")
        numbers = {f"{OWN_PREFIX}{name}": value for name, value in points(event).items()}
        if numbers:
            # A row that is committed takes nothing more: the evaluation after its step would be dropped as too late.
            self._run.log(numbers | {OWN_STEP: event["step"]}, step=event["step"] if self._own else None, commit=False)
        elif is_news(event):
            send(self._run, event)
        self._succeeded = kind == SUCCESS

    def close(self) -> None:
        """End a run of its own: as finished after EXPERIMENT_SUCCESS, else as failed."""
        run, self._run = self._run, None
        if run is not None and self._own:
            run.finish(exit_code=0 if self._succeeded else 1)

    def state_dict(self) -> dict[str, Any]:
        return {"id": self._id}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._id = state.get("id") or self._id
