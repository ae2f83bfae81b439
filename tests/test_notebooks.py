"""Notebooks hold no output, and run from top to bottom to what they say."""

from __future__ import annotations

import os

import pytest

from tests.helpers import ROOT

nbformat = pytest.importorskip("nbformat", reason="needs the extra 'dev'")

FOLDER = ROOT / "notebooks"
SHOWN = {
    "reproduce_headline": "0.976",
    "watch_training": "(150, ",
    "diagnose_log": "WARNING WORSE_LEVEL, step 379 to 720",
    "add_fault_and_detector": "alerts at [",
}
"""Text that the outputs of a notebook must hold."""

notebook = pytest.mark.parametrize("name", SHOWN)


def test_every_notebook_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == {*SHOWN}


@notebook
def test_it_is_kept_without_outputs(name: str) -> None:
    cells = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4).cells
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert code
    assert not any(cell.outputs or cell.execution_count for cell in code)


@pytest.mark.long
@notebook
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the notebook client's own libraries
def test_it_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("nbclient", reason="needs the extra 'dev'").NotebookClient
    if name == "watch_training":
        pytest.importorskip("torch", reason="needs the extra 'live'")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    run = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    client(run, timeout=300, resources={"metadata": {"path": str(FOLDER)}}).execute()
    outputs = [output for cell in run.cells if cell.cell_type == "code" for output in cell.outputs]
    texts = [output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs]
    assert SHOWN[name] in "\n".join(texts), texts
