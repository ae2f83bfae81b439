from __future__ import annotations

import subprocess
import sys

from rmetric.monitor.hardware.reports import COMPONENTS, SLOW_WORKER, STALL, STRAGGLER, XIDS, HardwareReport, merged
from rmetric.simulation.hardware import INTERRUPTIONS


def test_components_are_named_as_in_the_simulator() -> None:
    assert {*COMPONENTS} - {*INTERRUPTIONS} == {STRAGGLER, STALL, SLOW_WORKER}
    assert {component for component, _, _ in XIDS.values()} <= {*COMPONENTS}


def test_reports_of_one_poll_are_one_for_each_component_kind_worker_and_identity() -> None:
    reports = [
        HardwareReport("SSD", "correctable", 0, "first"),
        HardwareReport("SSD", "correctable", 0, "second"),
        HardwareReport("SSD", "correctable", 0, "third"),
        HardwareReport("SSD", "fatal", 0, "other kind"),
        HardwareReport("SSD", "correctable", 1, "other worker"),
        HardwareReport("SSD", "correctable", 0, "other event", identity="Xid 63"),
    ]
    assert [report.details for report in merged(reports)] == [
        "first (and 2 more)",
        "other kind",
        "other worker",
        "other event",
    ]


def test_the_package_needs_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; import rmetric.monitor.hardware as h; "
        "assert h.StepTimes() and 'pynvml' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
