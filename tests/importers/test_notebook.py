"""What the cells of a notebook printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmetric.errors import UserError
from rmetric.importers import read_run, runs_of

STEPS = range(1, 21)
LINES = [f"step {step}: loss {3.0 - step / 10:.2f}\n" for step in STEPS]
ROWS = "".join(f"<tr>\n<td>{step}</td>\n<td>{3.0 - step / 10:.2f}</td>\n</tr>\n" for step in STEPS)
TABLE = (
    f"<table><thead><tr style='x'><th>Step</th><th>Training <b>Loss</b></th></tr></thead><tbody>{ROWS}</tbody></table>"
)
OUTPUTS: dict[str, dict[str, Any]] = {
    "lines": {"output_type": "stream", "name": "stdout", "text": LINES},
    "one text": {"output_type": "stream", "name": "stdout", "text": "".join(LINES)},
    "a bar": {"output_type": "stream", "name": "stderr", "text": "\r".join(line.strip() for line in LINES)},
    "a value": {"output_type": "execute_result", "data": {"text/plain": LINES}},
    "a table": {"output_type": "display_data", "data": {"text/html": [TABLE], "text/plain": ["<IPython…HTML object>"]}},
}


def written(folder: Path, outputs: list[Any]) -> Path:
    cells = [{"cell_type": "markdown", "source": ["loss: 7.0 at step 3"]}, {"cell_type": "code", "outputs": outputs}]
    path = folder / "train.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1))
    return path


@pytest.mark.parametrize("name", OUTPUTS)
def test_what_a_cell_printed_is_a_log(tmp_path: Path, name: str) -> None:
    run = read_run(written(tmp_path, [OUTPUTS[name]]))
    assert run.observations.step.tolist() == [*STEPS]
    assert run.observations["training_loss"].tolist() == pytest.approx([3.0 - step / 10 for step in STEPS])


def test_two_cells_that_train_are_two_runs(tmp_path: Path) -> None:
    runs = [*runs_of(written(tmp_path, [OUTPUTS["lines"], OUTPUTS["one text"]]))]
    assert [len(logged.run.observations) for logged in runs] == [len(STEPS), len(STEPS)]


@pytest.mark.parametrize("outputs", [[], [None, 3, {"data": None}, {"text": {"a": 1}}]])
def test_a_notebook_that_printed_no_loss_is_refused(tmp_path: Path, outputs: list[Any]) -> None:
    with pytest.raises(UserError, match="reports no loss"):
        read_run(written(tmp_path, outputs))
