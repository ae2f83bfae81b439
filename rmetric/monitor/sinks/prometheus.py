"""Show a run in Prometheus: through a text file for the node exporter, or an endpoint of its own."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmetric.errors import UserError
from rmetric.measurements import OBSERVABLE, VERDICTS
from rmetric.monitor.sinks.base import Sink, optional_module, scalars
from rmetric.records import TERMINAL_EVENTS, VALIDATION
from rmetric.verdict import is_news

_UNITS = {"training_loss": "nats", "validation_loss": "nats", "delta_l": "nats", "lambda": "per_hour"}
"""Fields whose name in the log does not end in their unit."""

_NAMES = {"non_finite_count": "non_finite_gradients"}
"""Fields that have another name here: one in ``_count`` belongs to a histogram or a summary."""

DESCRIBED = {name: measurement.description for name, measurement in {**OBSERVABLE, **VERDICTS}.items()}
DESCRIBED |= {
    "training_loss": "mean loss of the batch of the latest step, nats",
    "validation_loss": "latest known mean loss on held-out data, nats",
    "learning_rate": "largest one of the optimizer's parameter groups",
    "step_time_s": "duration of the latest step, from one update to the next, s",
    "noise_scale": "gradient noise scale B_simple (McCandlish et al. 2018), in parts of a step's batch",
}
COUNTED = ("HARDWARE_EVENT", "HANG", "REPAIR", *TERMINAL_EVENTS)
"""Kinds of events that are counted from 0, beside the alerts of each detector."""


def metric_name(field: str) -> str:
    """A field of the log by the conventions of Prometheus: prefix, plain letters, the base unit last.

    >>> [metric_name(field) for field in ("lambda", "step_time_s", "non_finite_count")]
    ['rmetric_lambda_per_hour', 'rmetric_step_time_seconds', 'rmetric_non_finite_gradients']
    """
    plain = re.sub(r"[^a-zA-Z0-9_]", "_", _NAMES.get(field, field))
    plain = re.sub(r"_s$", "_seconds", plain)
    return "_".join(["rmetric", plain, *([_UNITS[field]] if field in _UNITS else [])])


class _Exposition(Sink):
    """The latest values of a run as Prometheus metrics, each with the label ``run``.

    Every number of the latest METRICS record is a gauge, NaN when that record does not have it. Beside them:

    - ``rmetric_step``: last step that was recorded.
    - ``rmetric_last_step_timestamp_seconds``: when that was, in Unix time: a run that hangs leaves it behind.
    - ``rmetric_run_active``: 1 until the run is closed.
    - ``rmetric_hanging``: 1 for each worker that holds up the training, by its number.
    - ``rmetric_alerts_total``: alerts that people are told of: one a cause.
    - ``rmetric_events_total``: events of the log by kind and detector.

    Counters begin at 0, each detector's too, so that ``increase()`` sees the first alert.
    """

    def __init__(self, run: str | None) -> None:
        self._client = optional_module("prometheus_client", "The Prometheus client")
        self._registry = self._client.CollectorRegistry()
        self._run = run
        self._fields: dict[str, Any] = {}
        self._active: Any = None

    def start(self, config: Mapping[str, Any], *, resume_step: int | None) -> None:
        self._run = self._run or str(config.get("experiment_id") or "run")
        self._step = self._gauge("rmetric_step", "Last training step that was recorded")
        self._time = self._gauge("rmetric_last_step_timestamp_seconds", "Unix time at which that step was recorded")
        self._active = self._gauge("rmetric_run_active", "Whether the run is watched: 1, and 0 from its end on")
        self._hanging = self._client.Gauge(
            "rmetric_hanging", "Whether this worker holds up the training", ["run", "worker"], registry=self._registry
        )
        self._alerts = self._counter("rmetric_alerts", "Alerts that people were told of, one a cause").labels(self._run)
        self._events = self._counter("rmetric_events", "Events of the log", "event", "detector")
        for detector in config.get("alert_thresholds", ()):
            self._events.labels(self._run, "ALERT", str(detector))
        for kind in COUNTED:
            self._events.labels(self._run, kind, "")
        self._step.set(resume_step or 0)
        self._time.set(time.time())  # the start counts as a sign of life
        self._active.set(1)

    def event(self, event: Mapping[str, Any]) -> None:
        """Take over the numbers of a record; count any other event."""
        kind = str(event.get("event"))
        if kind != "METRICS":
            self._events.labels(self._run, kind, str(event.get("detector", ""))).inc()
            if kind == "ALERT" and is_news(event):
                self._alerts.inc()
            elif kind in ("HANG", "HANG_OVER"):
                for worker in event["workers"]:
                    self._hanging.labels(self._run, worker).set(kind == "HANG")
            elif kind == VALIDATION:
                self._field("validation_loss").set(scalars(event).get("validation_loss", math.nan))
            return
        values = scalars(event)
        for name in self._fields.keys() | values.keys():
            self._field(name).set(values.get(name, math.nan))
        self._step.set(event["step"])
        self._time.set(time.time())

    def close(self) -> None:
        if self._active is not None:
            self._active.set(0)

    def _field(self, name: str) -> Any:
        if name not in self._fields:
            help_text = DESCRIBED.get(name, f"the field {name} of the run's log")
            first = help_text[0].upper() if help_text[0].isascii() else help_text[0]  # a Greek letter is a symbol
            self._fields[name] = self._gauge(metric_name(name), first + help_text[1:])
        return self._fields[name]

    def _counter(self, name: str, help_text: str, *labels: str) -> Any:
        return self._client.Counter(name, help_text, ["run", *labels], registry=self._registry)

    def _gauge(self, name: str, help_text: str) -> Any:
        return self._client.Gauge(name, help_text, ["run"], registry=self._registry).labels(self._run)


class PrometheusTextfile(_Exposition):
    """Writes the metrics to a file that the node exporter's textfile collector reads, and renames it into place.

    Parameters
    ----------
    path
        In the collector's folder; ends in ``.prom``, or the collector passes it by.
    every_steps
        Steps between two writes; alerts and other events are written at once.
    run
        Label of this run; by default the file's name, so that two files never hold the same series.

    Raises
    ------
    UserError
        The client library is not installed, or the name does not end in ``.prom``.
    """

    def __init__(self, path: str | os.PathLike[str], *, every_steps: int = 10, run: str | None = None) -> None:
        self.path, self._asked = Path(path).absolute(), Path(path)  # the program may go to another folder
        if self.path.suffix != ".prom":
            raise UserError(f"the node exporter reads files that end in .prom only, not {self.path.name}")
        if every_steps < 1:
            raise UserError(f"every_steps must be at least 1, not {every_steps}")
        super().__init__(run or self.path.stem)
        self._every_steps = every_steps
        self._next_step = 0

    def __str__(self) -> str:
        return str(self._asked)

    def start(self, config: Mapping[str, Any], *, resume_step: int | None) -> None:
        super().start(config, resume_step=resume_step)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.flush()

    def event(self, event: Mapping[str, Any]) -> None:
        super().event(event)
        step = event.get("step", 0)
        if event.get("event") != "METRICS" or step >= self._next_step:
            self._next_step = step + self._every_steps
            self.flush()

    def flush(self) -> None:
        self._client.write_to_textfile(str(self.path), self._registry)

    def close(self) -> None:
        """Write the file for the last time: the run is not active any more."""
        super().close()
        if self._active is not None:
            self.flush()


class PrometheusEndpoint(_Exposition):
    """Serves the metrics over HTTP, from a thread of its own, until the run is closed.

    How the run ended is known when it is closed, and so no scrape sees it; a :class:`PrometheusTextfile` tells of it.

    Parameters
    ----------
    port
        0: any that is free; see :attr:`port`.
    address
        By default this machine only; ``0.0.0.0``: whoever can reach it.
    run
        Label of this run; by default its name, the ``experiment_id`` of its log.

    Raises
    ------
    UserError
        The client library is not installed.
    """

    def __init__(self, port: int, address: str = "127.0.0.1", *, run: str | None = None) -> None:
        super().__init__(run)
        self.port = port
        """Port; after :meth:`start`, the one that is served."""
        self._address = address
        self._server: Any = None

    def __str__(self) -> str:
        return f"Prometheus endpoint {self._address}:{self.port}"

    def start(self, config: Mapping[str, Any], *, resume_step: int | None) -> None:
        """Begin to serve; raises ``OSError`` when the port is taken."""
        super().start(config, resume_step=resume_step)
        self._server = self._client.start_http_server(self.port, self._address, self._registry)
        self.port = self._server[0].server_port

    def close(self) -> None:
        super().close()
        if self._server is not None:
            (server, thread), self._server = self._server, None
            server.shutdown()
            server.server_close()
            thread.join()
