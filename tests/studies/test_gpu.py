"""``make gpu``: what is skipped says why, and every part works on a CPU in its smallest shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from studies.gpu import probe
from studies.gpu.parts import parts
from studies.gpu.run import main

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


def report_of(folder: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads((folder / "gpu.json").read_bytes())["parts"]
    return found


@NO_GPU
def test_without_a_gpu_every_part_is_skipped_with_the_reason(tmp_path: Path) -> None:
    assert main(["--out", str(tmp_path)]) in (None, 0)
    found = report_of(tmp_path)
    assert {part["status"] for part in found.values()} == {"skipped"}
    assert all("no cuda here with torch" in str(part["reason"]) for part in found.values())
    assert [*found] == [part.name for part in parts("cuda", tiny=False)]
    assert all(f"| {name} " in (tmp_path / "gpu.md").read_text() for name in found)


def test_all_parts_fit_into_their_time_whatever_the_single_ones_take(tmp_path: Path) -> None:
    main(["--device", "cpu", "--tiny", "--seconds", "1", "--out", str(tmp_path)])
    assert {str(part["reason"]) for part in report_of(tmp_path).values()} == {"no time left"}


def test_an_unknown_part_is_refused() -> None:
    assert main(["--only", "nothing"]) != 0


@pytest.mark.slow
def test_a_corrupted_number_is_repaired_to_the_bits_of_the_twin() -> None:
    found = probe.repair(torch.device("cpu"), tiny=True)
    assert found == {
        "stream": "none",
        "gradient": ["transient"],
        "gradient_as_twin": True,
        "weight": ["restored"],
        "weight_as_twin": True,
    }


@pytest.mark.slow
def test_a_compiled_model_is_watched_like_any_other() -> None:
    found = probe.compiled(torch.device("cpu"), tiny=True)
    assert found["largest_loss_difference_nats"] < 1e-4
    assert found["compiled_watched_step_ms"] > 0


@pytest.mark.long
def test_every_part_works_on_a_cpu(tmp_path: Path) -> None:
    """In a process of its own each, as on a GPU; the probes are those of the tests above."""
    apart = ["overhead", "case study", "real study"]
    assert main(["--device", "cpu", "--tiny", "--only", "nvml", *apart, "--out", str(tmp_path)]) in (None, 0)
    found = report_of(tmp_path)
    assert {name for name, part in found.items() if part["status"] != "done"} <= {"nvml", "overhead 0.02M fp16"}
    assert found["real study, a slice"]["found"]["steps"] > 0  # type: ignore[index]
    assert found["case study tiny-qwen"]["found"]["control_equals_twin"]  # type: ignore[index]
