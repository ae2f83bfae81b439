from __future__ import annotations

import subprocess
import sys

import pytest

from rmetric.components import SLOW_WORKER, STALL, STRAGGLER
from rmetric.monitor.hardware.reports import COMPONENTS, XIDS, HardwareReport, merged, pci_address, xid_report
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


@pytest.mark.parametrize("number", [48, 64, 74, 79, 94, 95, 119, 120])
def test_what_ends_a_worker_is_fatal(number: int) -> None:
    report = xid_report(number, 3, "0000:65:00")
    assert (report.kind, report.worker) == ("fatal", 3)


def test_what_training_survives_is_correctable() -> None:
    correctable = {number for number, (_, kind, _) in XIDS.items() if kind == "correctable"}
    assert {63, 92} <= correctable
    assert {kind for _, kind, _ in XIDS.values()} == {"correctable", "fatal"}


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68, 69, 154, 0, -1, 10**30, None, "79", 79.0])
def test_errors_of_the_application_and_garbage_are_not_hardware(number: object) -> None:
    assert xid_report(number, 0, "0000:65:00") is None


def test_a_lost_gpu_and_xid_79_are_one_event_and_without_an_address_nothing_is_known_to_be_one() -> None:
    first, second = (xid_report(79, 0, "0000:65:00", note) for note in ("", "GPU is lost"))
    assert first.identity == second.identity != ""
    other = xid_report(79, 0, "0000:66:00")
    assert other is not None and other.identity != first.identity
    nowhere = xid_report(79, 0, "")
    assert nowhere is not None and nowhere.identity == ""


@pytest.mark.parametrize("text", ["00000000:AF:00.0", "PCI:0000:af:00", "0000:af:00.1", "NVRM: GPU 0000:af:00.0: gone"])
def test_one_gpu_has_one_address(text: str) -> None:
    assert pci_address(text) == "0000:af:00"


def test_no_address_is_empty() -> None:
    assert pci_address("no address") == ""
