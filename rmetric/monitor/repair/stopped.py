"""The end of a training that a policy has stopped."""

from __future__ import annotations

EXIT_STATUS = 3
"""Exit status of a process whose training a policy has stopped."""


class TrainingStopped(SystemExit):
    """A policy has stopped the training; where nobody catches it, the process ends with status 3.

    :meth:`TrainingMonitor.step` raises it, in every process of a distributed training, after the record of the step is
    written and the log is closed.
    """

    def __init__(self, step: int, verdict: str) -> None:
        super().__init__(EXIT_STATUS)
        self.step = step
        """Step that the training had reached."""
        self.verdict = verdict
        """Why it was stopped, for people."""
        self.reason = "STOPPED"
        """Reason in the last line of the log."""

    def __str__(self) -> str:
        return f"training stopped at step {self.step}: {self.verdict}"
