from __future__ import annotations

import pytest

from rmetric.monitor.hardware.reports import XIDS, pci_address, xid_report


@pytest.mark.parametrize("number", [48, 64, 74, 79, 94, 95, 119, 120])
def test_what_ends_a_worker_is_fatal(number: int) -> None:
    report = xid_report(number, 3, "0000:65:00")
    assert report is not None
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
    assert first is not None and second is not None
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
