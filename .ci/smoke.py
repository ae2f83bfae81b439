"""Smoke test of an installation, run by its own Python from a folder that has nothing of the repository.

python .ci/smoke.py

Simulates a failing run, then reads, replays, diagnoses and reports its log; needs no torch.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import rmetric
from rmetric.replay import replay_log
from rmetric.simulation import RunSpec, run_batch

STEPS = 1000


def main() -> None:
    """Raise an error if a part of the installation does not work, else print its version."""
    assert importlib.util.find_spec("studies") is None, "the repository is on the path; this is no test of a wheel"
    spec = RunSpec(architecture="mistral-7b", fault="LR_SPIKE", severity="high", steps=STEPS)
    (made,) = run_batch([spec])
    with TemporaryDirectory() as folder:
        log = Path(folder) / "run.jsonl"
        log.write_bytes(made.content)
        records = len(rmetric.read_run(log).observations)
        assert 0 < records == made.records == replay_log(log).records
        assert rmetric.diagnose(log).findings
        for words, status in ((["diagnose"], 1), (["report", "--out", f"{folder}/page.html"], 0)):
            done = subprocess.run([sys.executable, "-m", "rmetric", *words, str(log)], capture_output=True, text=True)
            assert done.returncode == status, done.stdout + done.stderr
        assert "run.jsonl" in Path(folder, "page.html").read_text(encoding="utf-8")
    print(f"rmetric {rmetric.__version__} works: {sys.version.split()[0]}, {records} records")


if __name__ == "__main__":
    main()
