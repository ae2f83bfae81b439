"""The command: tables and figures of any study, the same bytes twice; the builders that the scripts use."""

from pathlib import Path

import numpy as np
import pytest

from rmetric.detectors import make_detector
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.studies import Study
from rmetric.reporting.table import SCREEN_WIDTH, to_screen
from rmetric.risk.model import RiskModel
from studies.risk.evaluate import main
from studies.risk.figures import draw_confusion, draw_reliability
from studies.risk.quality import Judged
from studies.risk.records import default_detector
from studies.risk.tables import judge, tables_of
from tests.evaluation.builders import build_run

TABLES = ["table_12_risk", "table_13_healing", "table_14_diagnosis", "table_14b_confusion"]
FILES = {*TABLES, "figure_6_reliability", "figure_7_confusion", "captions"}


@pytest.mark.long
def test_the_command_writes_tables_figures_and_captions(
    logs: Path, model: RiskModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "model.json", tmp_path / "out"
    model.save(file)
    options = ["--logs", str(logs), "--out", str(out), "--model", str(file), "--bootstrap", "40", "--jobs", "1"]
    assert main(options) == 0
    assert {path.stem for path in out.iterdir()} == FILES
    assert "Recoverable or fatal" in capsys.readouterr().out
    captions = (out / "captions.md").read_text(encoding="utf-8")
    assert "studies.risk.evaluate" in captions


def test_no_logs_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--logs", str(tmp_path / "none"), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.slow
def test_tables_fit_the_screen_and_say_what_was_fitted(judged: Judged) -> None:
    for table in tables_of(judged):
        assert max(map(len, to_screen(table).splitlines())) <= SCREEN_WIDTH
        assert f"fitted to the {judged.model.parameters.provenance['runs']} runs" in table.caption
        assert "out of its range" not in table.caption


@pytest.mark.slow
def test_tables_of_an_evaluator_are_by_the_shipped_model(study: Study) -> None:
    name = default_detector().name
    evaluator = Evaluator.of(study, [name], jobs=1, draws=40)
    built = tables_of(judge(evaluator))
    assert [table.name for table in built] == TABLES
    apart = Judged.of(study, RiskModel.shipped(), make_detector(name), jobs=1, draws=40)
    assert tables_of(apart)[1].rows == built[1].rows


@pytest.mark.long
def test_figures_are_the_same_bytes_twice(judged: Judged) -> None:
    for draw in (draw_reliability, draw_confusion):
        first, again = draw(judged), draw(judged)
        assert first.files == again.files
        assert {*first.files} == {"png", "pdf"}
        assert "not fitted to" in first.caption


@pytest.mark.slow
def test_a_study_without_alerts_or_failures_is_drawn_all_the_same(model: RiskModel) -> None:
    runs = [build_run(range(1, 60), seed=seed, columns={"training_loss": np.full(59, 2.0)}) for seed in (2, 4)]
    silent = Judged.of(Study(Path("made"), runs), model, make_detector("robust_z"), jobs=1, draws=20)
    assert len(silent.alerts) == 0
    for draw in (draw_reliability, draw_confusion):
        assert draw(silent).files["png"]
    for table in tables_of(silent):
        assert to_screen(table)
