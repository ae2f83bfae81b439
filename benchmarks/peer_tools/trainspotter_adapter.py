"""trainspotter: ``trainspotter analyze FILE`` on a finished log, ``trainspotter watch FILE`` on a growing one."""

from __future__ import annotations

from pathlib import Path

from peer_worker import ALARMS, Adapter, Finding, Growing, serve


class Trainspotter(Adapter):
    """The functions that both commands call: ``load_run`` and ``run_all``."""

    package = "trainspotter"
    alarms = ("error", "warning")  # error is the gravest that --fail-on takes, which has no default

    def __init__(self) -> None:
        from trainspotter import detectors, readers

        self.load, self.check = readers.load_run, detectors.run_all

    def findings(self, log: Path) -> list[Finding]:
        run = self.load(str(log))
        if not run.metric_names():
            raise ValueError("trainspotter finds no numeric metrics in the log")  # its command exits with 2
        return [Finding(found.detector, ALARMS[found.severity], (found.step_start,)) for found in self.check(run)]

    def live(self, growing: Growing) -> dict[str, list[int]]:
        """Steps of the look at which the watch prints a finding that it has not printed yet."""
        alerts: dict[str, list[int]] = {name: [] for name in self.alarms}
        seen: set[tuple[str, str, int, int]] = set()
        for _ in growing:
            for found in self.check(self.load(str(growing.path))):
                key = (found.detector, found.metric, found.step_start, found.step_end)
                if key not in seen:
                    seen.add(key)
                    for name in ALARMS[found.severity]:
                        alerts[name].append(growing.step)
        return {name: sorted(set(steps)) for name, steps in alerts.items()}


if __name__ == "__main__":
    serve(Trainspotter, Trainspotter.package)
