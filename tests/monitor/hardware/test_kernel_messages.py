from __future__ import annotations

import pytest

from rmetric.monitor.hardware.kernel_log import recognise

FAILURES = [
    ("mce: [Hardware Error]: CPU 10: Machine Check: 0 Bank 5: bea0000000000108", "CPU", "fatal"),
    ("mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 7: 9c00004001010090", "CPU", "correctable"),
    ("mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 4: b200000000070f0f", "CPU", "fatal"),
    ("Kernel panic - not syncing: Fatal machine check on current CPU", "CPU", "fatal"),
    ("mce: [Hardware Error]: Machine check events logged", "CPU", "correctable"),
    ("[Hardware Error]: Corrected error, no action required.", "CPU", "correctable"),
    (
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0)",
        "System memory",
        "correctable",
    ),
    ("EDAC skx MC1: 2 UE memory scrubbing error on CPU_SrcID#1", "System memory", "fatal"),
    ("{2}[Hardware Error]:   section_type: memory error", "System memory", "correctable"),
    ("{1}[Hardware Error]: event severity: fatal", "CPU", "fatal"),
    ("Memory failure: 0x4a0d75: recovery action for dirty LRU page: Recovered", "System memory", "fatal"),
    (
        "pcieport 0000:00:03.0: AER: Multiple Corrected error received: 0000:00:03.0",
        "IO expansion board",
        "correctable",
    ),
    (
        "nvidia 0000:65:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer",
        "IO expansion board",
        "correctable",
    ),
    (
        "pcieport 0000:00:03.0: AER: Uncorrected (Non-Fatal) error received: 0000:00:03.0",
        "IO expansion board",
        "correctable",
    ),
    (
        "pcieport 0000:00:03.0: AER: Uncorrectable (Fatal) error message received from 0000:65:00.0",
        "IO expansion board",
        "fatal",
    ),
    ("pcieport 0000:00:1c.0: pciehp: Slot(4): Link Down", "IO expansion board", "fatal"),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress error",
        "Network switch / cable",
        "correctable",
    ),
    ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 14017, Fatal, Link 32 timeout", "Network switch / cable", "fatal"),
    ("NVRM: knvlinkHandleFaults: NVLink 4 fatal error detected", "Network switch / cable", "correctable"),
    ("CPU5: Core temperature above threshold, cpu clock throttled (total events = 12)", "CPU", "correctable"),
    ("thermal thermal_zone0: x86_pkg_temp: critical temperature reached, shutting down", "CPU", "fatal"),
    ("Memory cgroup out of memory: Killed process 4711 (python) total-vm:123kB", "System memory", "correctable"),
    ("python invoked oom-killer: gfp_mask=0xcc0, order=0", "System memory", "correctable"),
    ("blk_update_request: I/O error, dev sda, sector 123456 op 0x0:(READ)", "SSD", "correctable"),
    ("Buffer I/O error on dev nvme0n1p1, logical block 17, async page read", "SSD", "correctable"),
    ("nvme nvme0: I/O 12 QID 3 timeout, aborting", "SSD", "correctable"),
    ("nvme nvme0: Disabling device after reset failure: -19", "SSD", "fatal"),
    ("EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2", "SSD", "correctable"),
    ("EXT4-fs (sda1): Remounting filesystem read-only", "SSD", "fatal"),
    ("mlx5_core 0000:41:00.0 ens1f0: Link down", "NIC", "correctable"),
    ("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN", "NIC", "correctable"),
    ("ixgbe 0000:03:00.0 eth0: NIC Link is Down", "NIC", "correctable"),
    ("NETDEV WATCHDOG: eth0 (bnxt_en): transmit queue 3 timed out", "NIC", "correctable"),
]

HARMLESS = [
    "",
    "Linux version 6.18.44 (builder@host) #1 SMP PREEMPT_DYNAMIC",
    "ata3: SATA link down (SStatus 0 SControl 300)",
    "docker0: port 1(veth12ab) entered disabled state",
    "veth12ab: Link is down",
    "mlx5_core 0000:41:00.0 ens1f0: Link up",
    "pcieport 0000:00:03.0: AER: enabled with IRQ 27",
    "EDAC MC0: Giving out device to module skx_edac",
    "EDAC sbridge MC0: HANDLING MCE MEMORY ERROR",
    "CPU5: Core temperature/speed normal",
    "I/O error, dev loop0, sector 0",
    "blk_update_request: I/O error, dev sr0, sector 0",
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 236",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15",
    "EXT4-fs (sda1): mounted filesystem with ordered data mode",
    "oom_reaper: reaped process 4711 (python), now anon-rss:0kB",
]


@pytest.mark.parametrize(("message", "component", "kind"), FAILURES)
def test_failing_hardware_is_recognised(message: str, component: str, kind: str) -> None:
    report = recognise(message, worker=5)
    assert (report.component, report.kind, report.worker, report.details) == (component, kind, 5, message)


@pytest.mark.parametrize("message", HARMLESS)
def test_other_messages_are_left_alone(message: str) -> None:
    assert recognise(message, worker=0) is None


def test_an_xid_names_its_gpu_and_goes_to_its_worker() -> None:
    message = "NVRM: Xid (PCI:0000:65:00): 63, pid=1896, Row Remapper: New row marked for remapping"
    report = recognise(message, worker=0, gpus={"0000:65:00": 7})
    assert (report.component, report.kind, report.worker) == ("GPU HBM3 memory", "correctable", 7)
    assert "Xid 63 on GPU 0000:65:00: pid=1896, Row Remapper" in report.details


def test_an_older_driver_writes_no_pci() -> None:
    report = recognise("NVRM: Xid (0000:01:00): 79, GPU has fallen off the bus.", worker=0)
    assert (report.component, report.kind) == ("Faulty GPU", "fatal")


def test_an_application_error_is_not_hardware() -> None:
    assert recognise("NVRM: Xid (PCI:0000:65:00): 13, Graphics SM Warp Exception", worker=0) is None


def test_gpus_of_others_are_not_ours() -> None:
    message = "NVRM: Xid (PCI:0000:66:00): 48, DBE"
    assert recognise(message, worker=0, gpus={"0000:65:00": 0}) is None
    assert recognise(message, worker=0) is not None


def test_a_gpu_off_the_bus_is_the_event_that_xid_79_is() -> None:
    xid = recognise("NVRM: Xid (PCI:0000:b3:00): 79, GPU has fallen off the bus.", worker=0)
    plain = recognise("NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.", worker=0)
    split = recognise(
        "NVRM: The NVIDIA GPU 0000:b3:00.0 NVRM: (PCI ID: 10de:26b5) NVRM: fallen off the bus and", worker=0
    )
    assert xid.identity == plain.identity == split.identity != ""


def test_a_long_message_is_cut() -> None:
    report = recognise("EXT4-fs error " + "x" * 100_000, worker=0)
    assert len(report.details) <= 200
    assert recognise("x" * 100_000 + " EXT4-fs error", worker=0) is None
