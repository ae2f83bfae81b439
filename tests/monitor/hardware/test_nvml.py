from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmetric.monitor.hardware import HardwareReport, HardwareUnavailable, NvmlSource
from rmetric.monitor.hardware import nvml as gpu_module
from tests.monitor.hardware.fake_nvml import FakeGpu, FakeNvml

CORRECTED, UNCORRECTED, VOLATILE, AGGREGATE, MEMORY, SRAM = 0, 1, 0, 1, 2, 7
QUERIES = (
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetMemoryErrorCounter",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetPcieReplayCounter",
    "nvmlDeviceGetNvLinkErrorCounter",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetTemperatureThreshold",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetUtilizationRates",
    "nvmlEventSetWait_v2",
)
Change = Callable[[FakeGpu], object]


def watched(*gpus: FakeGpu, library: FakeNvml | None = None, **settings: Any) -> NvmlSource:
    """A source after its baseline."""
    source = NvmlSource(library or FakeNvml(*gpus), **settings)
    assert source.poll() == []
    return source


def seen(source: NvmlSource) -> list[tuple[str, str]]:
    return [(report.component, report.kind) for report in source.poll()]


def grow(**changes: Any) -> Change:
    return lambda gpu: [setattr(gpu, name, value) for name, value in changes.items()]


CHANGES: dict[str, tuple[Change, list[tuple[str, str]]]] = {
    "corrected memory error": (grow(ecc={(CORRECTED, VOLATILE): 1}), [("GPU HBM3 memory", "correctable")]),
    "uncorrected memory error": (grow(ecc={(UNCORRECTED, AGGREGATE): 2}), [("GPU HBM3 memory", "fatal")]),
    "corrected SRAM error": (grow(placed_ecc={(CORRECTED, VOLATILE, SRAM): 1}), [("GPU SRAM memory", "correctable")]),
    "row remapped": (grow(remapped=(1, 0, 0, 0)), [("GPU HBM3 memory", "correctable")]),
    "row remapped for an uncorrectable error": (grow(remapped=(0, 1, 1, 0)), [("GPU HBM3 memory", "correctable")]),
    "row remapping failed": (grow(remapped=(0, 0, 0, 1)), [("GPU HBM3 memory", "fatal")]),
    "PCIe replays": (grow(pcie_replays=3), [("IO expansion board", "correctable")]),
    "NVLink replays": (grow(nvlink={(1, 0): 5}), [("Network switch / cable", "correctable")]),
    "NVLink data CRC errors": (grow(nvlink={(0, 3): 1}), [("Network switch / cable", "correctable")]),
    "too hot for the driver": (grow(reasons=0x20), [("GPU thermal interface + sensor", "correctable")]),
    "too hot for the hardware": (grow(reasons=0x48), [("GPU thermal interface + sensor", "correctable")]),
    "power brake": (grow(reasons=0x88), [("Power supply", "correctable")]),
    "slowed down, unknown why": (grow(reasons=0x08), [("GPU thermal interface + sensor", "correctable")]),
    "idle, capped, set by a user": (grow(reasons=0x117), []),
    "at the slowdown threshold": (grow(temperature=90), [("GPU thermal interface + sensor", "correctable")]),
    "at the shutdown threshold": (grow(temperature=95), [("GPU thermal interface + sensor", "fatal")]),
    "power taken away": (grow(limit_mw=350_000), [("Power supply", "correctable")]),
    "over its limit": (grow(power_mw=900_000), [("Power supply", "correctable")]),
    "at its limit": (grow(power_mw=710_000), []),
    "a fatal Xid": (lambda gpu: gpu.events.append(95), [("GPU HBM3 memory", "fatal")]),
    "a correctable Xid": (lambda gpu: gpu.events.append(63), [("GPU HBM3 memory", "correctable")]),
    "an Xid of the application": (lambda gpu: gpu.events.extend([13, 31, 43]), []),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_reported_once(change: Change, expected: list[tuple[str, str]]) -> None:
    gpu = FakeGpu()
    source = watched(gpu)
    assert seen(source) == []
    change(gpu)
    assert seen(source) == expected
    assert seen(source) == []


@pytest.mark.parametrize(("change", "expected"), [pair for pair in CHANGES.values() if pair[1]])
def test_what_was_so_before_watching_began_is_no_event(change: Change, expected: object) -> None:
    gpu = FakeGpu()
    change(gpu)
    gpu.events.clear()  # the driver keeps no Xid from before the registration
    assert NvmlSource(FakeNvml(gpu)).poll() == []


def test_one_error_in_many_counters_is_one_event() -> None:
    gpu = FakeGpu()
    source = watched(gpu)
    gpu.ecc = {(CORRECTED, VOLATILE): 7, (CORRECTED, AGGREGATE): 7}
    gpu.placed_ecc = {(CORRECTED, VOLATILE, MEMORY): 7, (CORRECTED, AGGREGATE, MEMORY): 7}
    (report,) = source.poll()
    assert report.component == "GPU HBM3 memory"
    assert "+7" in report.details and "GPU 0000:65:00" in report.details


def test_an_error_of_sram_is_not_one_of_memory_as_well() -> None:
    gpu = FakeGpu()
    source = watched(gpu)
    gpu.ecc = {(UNCORRECTED, VOLATILE): 1}
    gpu.placed_ecc = {(UNCORRECTED, VOLATILE, SRAM): 1}
    assert seen(source) == [("GPU SRAM memory", "fatal")]


def test_counters_that_keep_growing_keep_being_reported() -> None:
    gpu = FakeGpu()
    source = watched(gpu)
    found = []
    for replays in (1, 5, 5, 6):
        gpu.pcie_replays = replays
        found.append([report.details for report in source.poll()])
    assert [[details.split()[-1] for details in poll] for poll in found] == [["+1"], ["+4"], [], ["+1"]]


def test_a_counter_that_was_reset_is_a_new_baseline() -> None:
    gpu = FakeGpu(pcie_replays=100)
    source = watched(gpu)
    gpu.pcie_replays = 2
    assert source.poll() == []
    gpu.pcie_replays = 3
    assert "PCIe replays: +1" in source.poll()[0].details


def test_a_hot_gpu_is_reported_again_only_after_it_has_cooled() -> None:
    gpu = FakeGpu()
    source = watched(gpu)
    found = []
    for temperature in (90, 89, 91, 86, 90, 84, 90, 96, 94, 96):
        gpu.temperature = temperature
        found.append([report.kind for report in source.poll()])
    assert found == [["correctable"], [], [], [], [], [], ["correctable"], ["fatal"], [], []]


def test_clocks_that_stay_low_are_one_event_and_a_second_reason_is_another() -> None:
    gpu = FakeGpu()
    source = watched(gpu)
    gpu.reasons = 0x48
    assert len(source.poll()) == 1
    gpu.reasons = 0x4C
    assert source.poll() == []
    gpu.reasons = 0xC8
    assert seen(source) == [("Power supply", "correctable")]
    gpu.reasons = 0x08
    assert source.poll() == []


def test_a_lost_gpu_is_one_fatal_report_and_is_not_asked_again() -> None:
    good, bad = FakeGpu(), FakeGpu(bus_id="00000000:66:00.0")
    source = watched(good, bad)
    bad.lost = FakeNvml.NVML_ERROR_GPU_IS_LOST
    (report,) = source.poll()
    assert (report.component, report.kind, report.worker) == ("Faulty GPU", "fatal", 1)
    assert report.identity and "0000:66:00" in report.details
    bad.lost = 0
    good.pcie_replays = bad.pcie_replays = 1
    assert [report.worker for report in source.poll()] == [0]
    assert all(math.isnan(value) for value in source.readings()[1].values())
    assert source.readings()[0]["temperature_c"] == 50.0
    source.close()


@pytest.mark.parametrize("how", [FakeNvml.NVML_ERROR_GPU_IS_LOST, FakeNvml.NVML_ERROR_RESET_REQUIRED, "Xid 79"])
def test_when_every_gpu_is_lost_the_source_says_so_after_its_last_report(how: object) -> None:
    gpu = FakeGpu()
    source = watched(gpu)
    gpu.events.append(62)
    if isinstance(how, int):
        gpu.lost = how
        gpu.events.clear()
    else:
        gpu.events.append(79)
    found = source.poll()
    assert [report.component for report in found][-1] == "Faulty GPU"
    assert len(found) == (1 if isinstance(how, int) else 2)
    with pytest.raises(HardwareUnavailable, match="every watched GPU is lost"):
        source.poll()
    source.close()


def test_what_was_seen_before_the_gpu_was_lost_is_kept() -> None:
    gpu = FakeGpu(temperature=FakeNvml.NVMLError(FakeNvml.NVML_ERROR_UNKNOWN))
    source = watched(gpu)
    gpu.pcie_replays = 1
    gpu.temperature = FakeNvml.NVMLError(FakeNvml.NVML_ERROR_GPU_IS_LOST)
    assert seen(source) == [("IO expansion board", "correctable"), ("Faulty GPU", "fatal")]


def test_a_driver_that_goes_away_ends_the_source() -> None:
    library = FakeNvml(FakeGpu())
    source = NvmlSource(library)
    source.poll()
    with library.failing(FakeNvml.NVML_ERROR_UNINITIALIZED):
        with pytest.raises(HardwareUnavailable, match=r"^the NVIDIA driver is gone \(NVML error 1\)$"):
            source.poll()
        source.close()


@pytest.mark.parametrize("missing", QUERIES)
def test_a_query_that_is_not_supported_stops_no_other_and_is_not_asked_again(missing: str) -> None:
    gpu = FakeGpu(unsupported={missing})
    library = FakeNvml(gpu)
    source = watched(library=library)
    asked = library.calls.get(missing, 0)
    for change, _ in CHANGES.values():
        change(gpu)
    found = {report.component for report in source.poll()}
    assert len(found) >= 5
    assert library.calls.get(missing, 0) == asked


def test_older_drivers_are_asked_the_older_way() -> None:
    gpu = FakeGpu(unsupported={"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperatureV"})
    source = watched(gpu)
    gpu.reasons = 0x20
    assert seen(source) == [("GPU thermal interface + sensor", "correctable")]
    assert source.readings()[0]["temperature_c"] == 50.0


def test_a_gpu_that_supports_nothing_is_silent() -> None:
    gpu = FakeGpu(
        unsupported={
            *QUERIES,
            "nvmlDeviceGetPciInfo",
            "nvmlDeviceGetNvLinkState",
            "nvmlDeviceRegisterEvents",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
            "nvmlDeviceGetTemperature",
        }
    )
    library = FakeNvml(gpu)
    source = watched(library=library)
    for change, _ in CHANGES.values():
        change(gpu)
    assert source.poll() == []
    assert all(math.isnan(value) for value in source.readings()[0].values())
    assert source.workers == {}
    assert library.event_sets == 0
    source.close()


GARBAGE = [
    -1,
    None,
    "17",
    b"\xff",
    2**31,
    2**32 - 1,
    2**64 - 1,
    10**30,
    math.nan,
    -math.inf,
    True,
    [1],
    ValueError("x"),
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=repr)
def test_garbage_is_ignored_and_leaves_the_baseline_alone(garbage: Any) -> None:
    gpu = FakeGpu()
    source = watched(gpu)
    everything = {
        "ecc": {(error, memory): garbage for error in (0, 1) for memory in (0, 1)},
        "placed_ecc": {(error, memory, place): garbage for error in (0, 1) for memory in (0, 1) for place in (2, 7)},
        "nvlink": {(link, error): garbage for link in (0, 1) for error in range(4)},
        "remapped": (garbage,) * 4,
        **dict.fromkeys(("temperature", "slowdown", "shutdown", "power_mw", "limit_mw", "utilisation"), garbage),
        **dict.fromkeys(("reasons", "pcie_replays"), garbage),
    }
    healthy = {name: getattr(gpu, name) for name in everything}
    for name, value in everything.items():
        setattr(gpu, name, value)
    gpu.events.extend([garbage, garbage])
    assert source.poll() == []
    gpu.events.clear()
    assert all(math.isnan(value) for value in source.readings()[0].values())
    for name, value in healthy.items():
        setattr(gpu, name, value)
    assert source.poll() == []
    gpu.nvlink = {(0, 0): 1}
    assert seen(source) == [("Network switch / cable", "correctable")]


@pytest.mark.parametrize("garbage", [None, 3, "", (), (1, 2)])
def test_remapped_rows_of_another_shape_are_ignored(garbage: Any) -> None:
    gpu = FakeGpu()
    source = watched(gpu)
    gpu.remapped = garbage
    gpu.pcie_replays = 1
    assert [report.component for report in source.poll() if report.component != "GPU HBM3 memory"] == [
        "IO expansion board"
    ]


@pytest.mark.parametrize("count", [-1, 0, None, "2", 10**9])
def test_a_library_that_counts_no_gpus_is_unavailable(count: Any) -> None:
    library = FakeNvml(FakeGpu())
    library.count = count
    with pytest.raises(HardwareUnavailable, match="no NVIDIA GPU is visible to NVML"):
        NvmlSource(library)
    assert library.open == 0


def test_a_storm_of_xids_does_not_hold_the_poll() -> None:
    gpu = FakeGpu()
    source = watched(gpu)
    gpu.events.extend([94] * 10_000)
    (report,) = source.poll()
    assert report.details.endswith("(and 63 more)")


def test_readings_are_those_of_the_last_poll() -> None:
    source = NvmlSource(FakeNvml(FakeGpu()))
    assert all(math.isnan(value) for value in source.readings()[0].values())
    source.poll()
    assert source.readings() == {
        0: {"temperature_c": 50.0, "power_w": 300.0, "power_limit_w": 700.0, "utilisation_pct": 98.0}
    }


def test_devices_are_chosen_by_index_or_uuid_and_numbered_as_workers() -> None:
    gpus = [FakeGpu(bus_id=f"00000000:6{index}:00.0", uuid=f"GPU-{index}") for index in range(4)]
    source = NvmlSource(FakeNvml(*gpus), devices=[3, "GPU-1"], worker=10)
    assert source.workers == {"0000:63:00": 10, "0000:61:00": 11}


@pytest.mark.parametrize(
    ("variable", "expected"),
    [("2,0", {"0000:62:00": 0, "0000:60:00": 1}), ("GPU-1", {"0000:61:00": 0}), ("1,9", {"0000:61:00": 0})],
)
def test_the_gpus_that_cuda_may_see_are_watched(
    monkeypatch: pytest.MonkeyPatch, variable: str, expected: dict[str, int]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    gpus = [FakeGpu(bus_id=f"00000000:6{index}:00.0", uuid=f"GPU-{index}") for index in range(4)]
    assert NvmlSource(FakeNvml(*gpus)).workers == expected


@pytest.mark.parametrize("variable", ["", "-1", "9"])
def test_without_a_gpu_that_cuda_may_see_there_is_nothing_to_watch(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    with pytest.raises(HardwareUnavailable, match="no NVIDIA GPU is visible to NVML"):
        NvmlSource(FakeNvml(FakeGpu()))


def test_a_gpu_that_is_lost_from_the_start_is_left_out() -> None:
    lost, good = FakeGpu(lost=FakeNvml.NVML_ERROR_GPU_IS_LOST), FakeGpu(bus_id="00000000:66:00.0")
    assert NvmlSource(FakeNvml(lost, good)).workers == {"0000:66:00": 1}
    with pytest.raises(HardwareUnavailable, match="GPU of worker 0: NVML error 15"):
        NvmlSource(FakeNvml(lost))


def test_closing_gives_everything_back_once() -> None:
    library = FakeNvml(FakeGpu(), FakeGpu())
    source = NvmlSource(library)
    assert (library.open, library.event_sets) == (1, 2)
    source.close()
    source.close()
    assert (library.open, library.event_sets) == (0, 0)


def test_a_missing_module_is_one_clear_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(HardwareUnavailable, match=r"^nvidia-ml-py is not installed$"):
        NvmlSource()


def test_a_driver_that_does_not_start_is_one_clear_reason() -> None:
    library = FakeNvml(FakeGpu())
    library.init_error = FakeNvml.NVML_ERROR_DRIVER_NOT_LOADED
    with pytest.raises(HardwareUnavailable, match=r"^no NVIDIA GPU is visible to NVML \(NVML error 9\)$"):
        NvmlSource(library)


def test_the_real_library_answers_or_says_in_one_line_why_not() -> None:
    pytest.importorskip("pynvml")
    try:
        source = NvmlSource()
    except HardwareUnavailable as reason:
        assert re.fullmatch(r"no NVIDIA GPU is visible to NVML \([^\n]+\)", str(reason))
        return
    assert all(isinstance(report, HardwareReport) for report in source.poll() + source.poll())
    assert source.readings()
    source.close()


def test_the_real_library_has_every_name_that_is_used() -> None:
    pynvml = pytest.importorskip("pynvml")
    text = "".join(path.read_text() for path in Path(str(gpu_module.__file__)).parent.glob("*.py"))
    names = {*re.findall(r"\b(?:nvml[A-Z]\w+|NVML_[A-Z]\w+)", text)}
    assert len(names) > 40
    assert [name for name in sorted(names) if not hasattr(pynvml, name)] == []
    assert pynvml.nvmlClocksThrottleReasonSwThermalSlowdown == gpu_module.SW_THERMAL
    assert pynvml.nvmlClocksThrottleReasonHwSlowdown == gpu_module.HW_SLOWDOWN
    assert pynvml.nvmlClocksThrottleReasonHwThermalSlowdown == gpu_module.HW_THERMAL
    assert pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown == gpu_module.HW_POWER_BRAKE


def test_the_fake_library_is_like_the_real_one() -> None:
    pynvml = pytest.importorskip("pynvml")
    for name, value in vars(FakeNvml).items():
        if name.startswith(("NVML_", "nvmlEventType")):
            assert getattr(pynvml, name) == value, name
        elif name.startswith("nvml") and inspect.isfunction(value):
            real = inspect.signature(inspect.unwrap(getattr(pynvml, name))).parameters.values()
            needed = [parameter for parameter in real if parameter.default is parameter.empty]
            assert len(needed) == len(inspect.signature(value).parameters) - 1, name
    assert issubclass(pynvml.NVMLError_GpuIsLost, pynvml.NVMLError)
    assert pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST).value == FakeNvml.NVML_ERROR_GPU_IS_LOST
