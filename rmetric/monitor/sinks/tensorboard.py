"""Show a run in TensorBoard: its numbers as curves, its events as text."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmetric.log_writer import as_logged
from rmetric.measurements import OWN_PREFIX
from rmetric.monitor.sinks.base import Sink, optional_module, points, sentence

LAYOUT = {
    "R-Metric": {
        "loss": ["training_loss", "validation_loss"],
        "gradient and update": ["grad_norm", "update_rms"],
        "agreement of the gradient with the steps before": ["grad_agreement"],
        "components, normalised": ["lambda_norm", "sigma_sq_norm", "delta_l_norm", "r_metric"],
        "broken numbers": ["non_finite_count", "uniform_gap"],
        "settings that changed abruptly": ["settings_changed"],
    },
    "R-Metric: machine": {
        "time of a step, s": ["step_time_s"],
        "hardware events": ["hardware_events", "lambda"],
    },
    "R-Metric: inside the model": {
        "attention": ["attention_entropy", "attention_logit_max"],
        "router": ["routing_entropy", "router_similarity", "expert_load_max"],
    },
}
"""Charts of the tab *Custom scalars*: group → chart → fields of the log. A chart whose fields were not measured stays
empty."""


class TensorBoardSink(Sink):
    """Scalars ``rmetric/<field of the log>``, arranged in *Custom scalars*; alerts and all other events as text.

    A resumed run writes to the same folder; TensorBoard hides what the steps done anew had written.

    Parameters
    ----------
    folder
        Where the event files go; made at :meth:`start`.

    Raises
    ------
    UserError
        TensorBoard is not installed.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        optional_module("tensorboard", "TensorBoard")
        self.folder, self._asked = Path(folder).absolute(), Path(folder)  # the program may go to another folder
        self._writer: Any = None

    def __str__(self) -> str:
        return f"TensorBoard in {self._asked}"

    def start(self, config: Mapping[str, Any], *, resume_step: int | None) -> None:
        """Open an event file; a new run's configuration goes in as text."""
        from torch.utils.tensorboard import SummaryWriter  # slow: only who uses it waits for it

        purge_step = None if resume_step is None else resume_step + 1
        self._writer = SummaryWriter(str(self.folder), purge_step=purge_step)
        if resume_step is None:
            text = json.dumps(as_logged(config), indent=2, allow_nan=False)
            self._writer.add_text(f"{OWN_PREFIX}config", f"```\n{text}\n```", 0)
            self._writer.add_custom_scalars(_charts())

    def event(self, event: Mapping[str, Any]) -> None:
        step = event.get("step")
        numbers = points(event)
        for name, value in numbers.items():
            self._writer.add_scalar(f"{OWN_PREFIX}{name}", value, step)
        if not numbers:
            self._writer.add_text(f"{OWN_PREFIX}{str(event.get('event')).lower()}", sentence(event), step)

    def flush(self) -> None:
        """Write what is buffered; TensorBoard does so by itself every two minutes."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            writer, self._writer = self._writer, None
            writer.close()


def _charts() -> dict[str, dict[str, list[Any]]]:
    """:data:`LAYOUT` as TensorBoard takes it."""
    return {
        group: {title: ["Multiline", [f"{OWN_PREFIX}{field}$" for field in fields]] for title, fields in charts.items()}
        for group, charts in LAYOUT.items()
    }
