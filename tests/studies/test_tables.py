"""Tables of a small study and of real logs: what they say, and that every format of them is well-formed."""

from __future__ import annotations

import ast
import csv
import math
import re
import shlex
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from generate_paper_tables import main
from rmetric.detectors import Detector, register_detector
from rmetric.evaluation.ablation import ablation, transfers
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.protocols import group_key
from rmetric.evaluation.scores import Score
from rmetric.evaluation.studies import load_study
from rmetric.reporting.table import Column, Table, latex_text, to_csv, to_latex, to_markdown, to_screen
from studies import captions
from studies.catalogue import Inputs
from studies.paper.claims import ledger
from studies.paper.tables import CATALOGUE, build_tables
from tests.evaluation.builders import build_log, build_logs
from tests.helpers import ROOT

DETECTORS = ["loss_spike", "r_metric", "grad_norm", "validation_slope"]


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Evaluator:
    study = load_study(build_logs(tmp_path_factory.mktemp("study") / "logs"), jobs=1)
    return Evaluator.of(study, DETECTORS, jobs=1, draws=100)


@pytest.fixture(scope="module")
def tables(evaluator: Evaluator) -> dict[str, Table]:
    return {table.name: table for table in build_tables(Inputs({"simulated": evaluator}))}


def toy(*cells: object) -> Table:
    rows = [{"name": "a & b_c", "value": cell} for cell in cells]
    return Table("toy", "Toy", "A 100 % toy.", [Column("name", "Name"), Column("value", "Value", 2)], rows)


# --- Formats ---------------------------------------------------------------------------------------------------------


def test_undefined_cells_carry_their_reason_once():
    table = toy(Score.undefined("no run failed"), Score(0.5, 0.25, 0.75), Score.undefined("no run failed"))
    text = to_markdown(table)
    assert text.count("n/a (a)") == 3  # two cells and the note
    assert text.count("no run failed") == 1
    assert "0.50 [0.25, 0.75]" in text


def test_csv_has_full_precision_intervals_and_reasons():
    third = 1 / 3
    rows = list(csv.DictReader(to_csv(toy(Score(third, 0.25, 0.75), Score.undefined("why, oh why"))).splitlines()))
    assert float(rows[0]["value"]) == third
    assert (rows[0]["value_low"], rows[0]["undefined"]) == ("0.25", "")
    assert (rows[1]["value"], rows[1]["value_low"], rows[1]["undefined"]) == ("", "", "value: why, oh why")


def test_latex_is_escaped_and_balanced():
    text = to_latex(toy(1, Score(-0.5)))
    assert r"a \& b\_c" in text and r"A 100 \% toy." in text and r"$-$0.50" in text
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        assert text.count(rule) == 1
    assert text.count(r"\begin{") == text.count(r"\end{")
    unescaped = text.replace(r"\{", "").replace(r"\}", "")
    assert unescaped.count("{") == unescaped.count("}")
    assert latex_text("{") == r"\{"


def test_a_long_table_breaks_over_pages_and_a_short_one_is_scaled_to_one():
    short, long = to_latex(toy(*range(39))), to_latex(toy(*range(40)))
    assert r"\begin{longtable}" in long and r"\resizebox" not in long and long.count(r"\endhead") == 1
    assert r"\begin{tabular}" in short and r"\linewidth" in short and r"\textheight" in short
    assert all(f"& {index} " in long for index in range(40))
    shares = [float(share) for share in re.findall(r"\\dimexpr ([\d.]+)\\linewidth", long)]
    assert len(shares) == 2 and sum(shares) <= 1.0


def test_the_columns_of_a_long_table_share_the_line_however_wide_they_are():
    columns = [Column(f"c{index}", "Title of a column") for index in range(20)]
    rows = [{column.key: "many words " * 30 for column in columns}] * 40
    text = to_latex(Table("wide", "Wide", "Caption.", columns, rows))
    shares = [float(share) for share in re.findall(r"\\dimexpr ([\d.]+)\\linewidth", text)]
    assert len(shares) == 20 and sum(shares) == pytest.approx(1.0, abs=1e-3)


def test_what_latex_cannot_write_stands_by_its_number():
    assert latex_text("1 − √2 ≤ ∞ ä") == r"1 $-$ $\sqrt{}$2 $\le$ $\infty$ ä"
    assert latex_text("☃ Ħ") == "U+2603 U+0126"
    assert latex_text("--log-every 100–200 `x`") == (
        r"-{}-log-every 100\textendash{}200 \textasciigrave{}x\textasciigrave{}"
    )


@pytest.mark.slow
def test_latex_can_write_every_text_that_a_table_may_have():
    """Also those of tables and rows that these small studies do not have: they are texts of the code."""
    for description in CATALOGUE:
        titles = [column.title for column in description.columns]
        for text in (description.title, description.caption, *titles):
            assert "U+" not in latex_text(text), description.name
    for path in (ROOT / "studies").rglob("*.py"):
        if path.is_relative_to(ROOT / "studies" / "loops"):
            continue  # the programs that others wrote
        nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
                assert "U+" not in latex_text(node.value), f"{path}, line {node.lineno}"


def test_a_wide_table_is_broken_into_panels_that_repeat_the_first_column():
    columns = [Column("name", "Name"), *(Column(f"c{index}", f"Column {index}") for index in range(20))]
    table = Table("wide", "Wide", "Caption.", columns, [{"name": "x", **{f"c{index}": index for index in range(20)}}])
    text = to_screen(table, width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert text.count("Name") > 1
    assert all(f"Column {index}" in text for index in range(20))


def test_every_panel_repeats_the_columns_that_say_whose_row_it_is():
    keys = [Column(key, key.capitalize(), leading=True) for key in ("fault", "severity", "study")]
    columns = [*keys, *(Column(f"c{index}", f"Column {index}") for index in range(9))]
    row = {"fault": "A_FAULT_WITH_A_LONG_NAME", "severity": "medium", "study": "simulated"}
    table = Table("keys", "Keys", "Caption.", columns, [{**row, **{f"c{index}": index for index in range(9)}}])
    text = to_screen(table, width=70)  # the keys take more than half of it
    panels = text.count("Fault")
    assert panels > 2
    assert all(text.count(cell) == panels for cell in row.values())
    assert max(map(len, text.splitlines())) <= 70


@pytest.mark.parametrize("name", ["nothing", "one"])
def test_a_table_without_rows_is_still_a_table(name):
    table = Table(name, "Empty", "None.", [Column("a", "A"), Column("b", "B")], [])
    for render in (to_markdown, to_csv, to_latex, to_screen):
        assert "A" in render(table) or "a,b" in render(table)


# --- A small study ---------------------------------------------------------------------------------------------------


def test_all_tables_are_built_in_a_stable_order(tables):
    assert CATALOGUE.numbers == [*(str(number) for number in range(1, 19) if number != 16), "headline"]
    assert (list(tables)[:1], list(tables)[-2:]) == (["table_1_approaches"], ["headline", "headline_full"])
    order = ["r_metric", "loss_spike", "grad_norm", "validation_slope"]
    for name in ("table_1_approaches", "table_3_detectors", "table_3b_strict", "table_3c_budget"):
        assert [row["detector"] for row in tables[name].rows] == order


def test_the_scenario_matrix_counts_the_logs(tables):
    last = tables["table_2_scenario_matrix"].rows[-1]
    kinds = ("runs", "failed", "recovered", "clean", "censored", "incomplete")
    assert [last[kind] for kind in kinds] == [12, 4, 4, 4, 0, 0]
    assert last["incubation"] == 95


def test_gradient_norm_is_scored_as_the_logs_were_made(tables):
    row = next(row for row in tables["table_3_detectors"].rows if row["detector"] == "grad_norm")
    assert (row["recall_strict"].value, row["precision_strict"].value, row["f1_strict"].value) == (1.0, 1.0, 1.0)
    assert row["mean_lead_strict"].value == 400 - 310
    assert row["lead_min_strict"].value == pytest.approx(90 * 5 / 60)
    assert row["precision_paper"].value == 0.5  # the four runs that recovered are false positives there
    strict = next(row for row in tables["table_3b_strict"].rows if row["detector"] == "grad_norm")
    assert (strict["true_positives"], strict["false_alarms"], strict["absorbed"]) == (4, 0, 4)
    assert strict["false_alarms_per_1000"].value == 0.0
    assert strict["upper_bound"].value == pytest.approx(2.9957 * 1000 / (4 * 600 + 4 * 304 + 4 * 254), rel=1e-4)


def test_the_ledger_reads_our_values_from_the_code_and_the_logs(evaluator):
    claims = {claim.claim: claim for claim in ledger(evaluator)}
    assert claims["sum of the weights, upper end of R"].ours == 1.25
    assert claims["alert threshold"].ours == 0.57
    assert claims["simulated runs"].ours == 12
    assert claims["λ: hardware events in the window"].ours == 50
    assert claims["F1 in simulation"].paper == "0.973"
    assert claims["F1 in simulation"].ours_strict == evaluator.summary("r_metric", "strict")["f1"]
    assert "live" in claims["F1 in real runs"].ours.reason
    values = ("ours", "ours_paper", "ours_strict")
    for claim in claims.values():
        assert any(getattr(claim, value) is not None for value in values), claim.claim


@pytest.mark.slow
def test_the_command_of_a_claim_prints_its_value(evaluator, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written, read = {}, {}
    for claim in ledger(evaluator):
        values = [value for value in (claim.ours, claim.ours_paper, claim.ours_strict) if value is not None]
        values = [value.value if isinstance(value, Score) else value for value in values]
        if claim.claim == "baselines":
            continue  # of all detectors, and not of the four of this test
        if claim.command.startswith("python -c"):
            if claim.command not in read and "summary.json" not in claim.command:
                program = shlex.split(claim.command)[2]
                exec(program, {})
                read[claim.command] = capsys.readouterr().out
            for value in values if claim.command in read else ():
                assert f"{value:g}" in re.findall(r"[\d.]+\d|\d", read[claim.command].replace(".0\n", "")), claim.claim
        elif claim.command.startswith("python generate_paper_tables.py"):
            if claim.command not in written:
                out = f"out{len(written)}"
                status = main([*shlex.split(claim.command)[2:], "--out", out, "--jobs", "1"])
                assert status == 0
                texts = [file.read_text(encoding="utf-8") for file in (tmp_path / out).glob("*.csv")]
                written[claim.command] = {
                    cell for text in texts for row in csv.reader(text.splitlines()) for cell in row
                }
            for value in values:
                known = isinstance(value, str) or not math.isnan(value)
                assert not known or str(value) in written[claim.command], claim.claim
    assert len(read) >= 8 and len(written) >= 3


def test_the_headline_names_the_mark_to_beat(tables):
    assert "never stops has F1 0.500 under the paper protocol" in tables["headline"].notes[0]  # 2 · 4 / (2 · 4 + 8)


def test_weights_without_signals_and_of_other_architectures(evaluator):
    assert {variant.name for variant in ablation(evaluator)} >= {"paper's weights", "without ΔL", "equal weights"}
    moved = transfers(evaluator)
    assert len(moved) == 2 * 4
    at_home = [item.loss_pct for item in moved if item.source == item.target]
    assert {score.value for score in at_home if score.defined} == {0.0}


@pytest.mark.slow
def test_weights_are_fitted_on_groups_of_a_large_study_and_the_caption_says_so(evaluator, monkeypatch):
    assert evaluator.traced.all()
    monkeypatch.setattr("rmetric.evaluation.evaluator.MOST_TRACED", len(evaluator.study.runs) // 2)
    sampled = Evaluator(evaluator.study, evaluator.detectors, evaluator.scores, evaluator.signals_3N, draws=100)
    assert 0 < sampled.traced.sum() < len(evaluator.study.runs)
    groups = [
        {group_key(run) for run in compress(evaluator.study.runs, rows)} for rows in (sampled.traced, ~sampled.traced)
    ]
    assert groups[0].isdisjoint(groups[1])
    captions = [build_tables(Inputs({"simulated": each}), ["11"])[0].caption for each in (evaluator, sampled)]
    assert ["evenly spaced groups" in caption for caption in captions] == [False, True]


def test_the_same_seed_gives_the_same_intervals(evaluator):
    again = Evaluator(evaluator.study, evaluator.detectors, evaluator.scores, evaluator.signals_3N, draws=100)
    other = Evaluator(evaluator.study, evaluator.detectors, evaluator.scores, evaluator.signals_3N, draws=100, seed=1)
    assert again.summary("loss_spike", "strict") == evaluator.summary("loss_spike", "strict")
    assert other.summary("loss_spike", "paper") != evaluator.summary("loss_spike", "paper")


# --- The script ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_script_writes_every_table_three_times(tmp_path, capsys):
    logs = build_logs(tmp_path / "logs")
    out = tmp_path / "tables"
    arguments = ["--logs", str(logs), "--out", str(out), "--jobs", "1", "--bootstrap", "50"]
    assert main([*arguments, "--detectors", "r_metric", "grad_norm"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    for table in ("1", "2", "3", "4", "5", "6", "7", "8", "9", "11"):
        assert f"Table {table}:" in shown.out
    names = {path.stem for path in out.glob("*.md")}
    assert len(names) == 16 and "headline" in names
    for name in names:
        assert (out / f"{name}.tex").is_file()
        assert len(pd.read_csv(out / f"{name}.csv")) > 0
    headline = pd.read_csv(out / "headline.csv")
    assert headline["f1_paper"][0] == 0.973


def test_tables_of_other_logs_are_removed_and_those_of_the_same_stay(tmp_path, capsys):
    one, other, out = build_logs(tmp_path / "one"), build_logs(tmp_path / "other", seed=50), tmp_path / "tables"
    out.mkdir()
    (out / "mine.md").write_text("keep")

    def made(logs: Path, *numbers: str) -> tuple[set[str], list[str]]:
        options = ["--out", str(out), "--jobs", "1", "--bootstrap", "20", "--detectors", "grad_norm"]
        assert main(["--logs", str(logs), *options, "--tables", *numbers]) == 0
        document = re.findall(r"\\input{table_(\d+)_\w+}", (out / "all_tables.tex").read_text())
        return {path.name.split("_")[1] for path in out.glob("table_*")}, document

    assert made(one, "1", "2") == ({"1", "2"}, ["1", "2"])
    assert made(one, "6") == ({"1", "2", "6"}, ["1", "2", "6"])
    capsys.readouterr()
    assert made(other, "2") == ({"2"}, ["2"])
    assert "3 tables of other logs removed from" in capsys.readouterr().out
    assert (out / "mine.md").exists()


def test_a_run_that_failed_without_an_onset_is_in_the_caption_of_the_score_half(tmp_path):
    logs = build_logs(tmp_path / "logs")
    for seed, repetition in ((13, 1), (14, 2), (15, 2)):
        settings = {"model_type": "Llama-3-8B", "repetition": repetition}
        build_log(logs, f"run_{seed:03d}_x", onset=None, failure=400, seed=seed, **settings)
    facts = captions.facts(Evaluator.of(load_study(logs, jobs=1), ["grad_norm"], jobs=1, draws=20))
    assert "3 failed without a known onset" in facts["runs"]
    assert "2 failed without a known onset" in facts["score_half"]


def test_a_detector_that_scores_no_record_is_not_quiet(tmp_path, clean_registries):
    @register_detector("mute")
    @dataclass(kw_only=True)
    class Mute(Detector):
        threshold: float = 0.5

        def score_run(self, observations):
            return np.full(len(observations), np.nan)

    evaluator = Evaluator.of(load_study(build_logs(tmp_path / "logs"), jobs=1), ["r_metric", "mute"], jobs=1, draws=20)
    tables = build_tables(Inputs({"simulated": evaluator}), ["3"])
    assert len(tables) == 4
    for table in tables:
        cells = table.frame.set_index("detector").loc["mute"].drop("threshold", errors="ignore")
        assert {*cells} == {Score.undefined("it scores no record of these logs")}
    assert evaluator.best_baseline("strict") is None


def test_the_ledger_says_what_it_counts_as_baselines(evaluator):
    (found,) = [claim for claim in ledger(evaluator) if claim.claim == "baselines"]
    assert found.ours == 3 and found.remark.startswith("all detectors that were scored but the two R-Metrics")


@pytest.mark.slow
def test_damage_is_a_warning_on_the_error_stream(tmp_path, capsys):
    logs = build_logs(tmp_path / "logs")
    first = sorted(logs.glob("*.jsonl"))[0]
    first.write_bytes(first.read_bytes()[:-20])
    out = ["--out", str(tmp_path / "out"), "--jobs", "1", "--bootstrap", "20", "--detectors", "r_metric"]
    assert main(["--logs", str(logs), *out]) == 0
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == 2 and all(line.startswith("warning: 1 of 12") for line in warnings)


@pytest.mark.slow
def test_without_the_r_metric_its_cells_say_why(tmp_path, capsys):
    logs = build_logs(tmp_path / "logs")
    out = ["--out", str(tmp_path / "out"), "--jobs", "1", "--bootstrap", "20", "--detectors", "grad_norm"]
    assert main(["--logs", str(logs), *out]) == 0
    assert "not asked for" in capsys.readouterr().out


@pytest.mark.slow
def test_a_table_that_these_logs_cannot_make_is_named(tmp_path, capsys):
    logs = build_logs(tmp_path / "logs")
    arguments = ["--logs", str(logs), "--out", str(tmp_path / "tables"), "--detectors", "r_metric", "--tables"]
    assert main([*arguments, "17"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: table 17 needs what these logs lack; add data/real_runs.parquet to --logs"
    )
    assert main([*arguments, "17", "2"]) == 0
    assert "warning: table 17 needs what these logs lack" in capsys.readouterr().err


@pytest.mark.slow
def test_real_logs_of_one_seed(real_logs, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out"), "--jobs", "1", "--bootstrap", "50"]
    assert main(["--logs", str(real_logs[0].parent), *out, "--detectors", *DETECTORS]) == 0
    shown = capsys.readouterr().out
    assert "15 runs: 8 failed, 6 recovered, 1 clean; left out: 1 censored, 0 incomplete" in " ".join(shown.split())
    strict = pd.read_csv(tmp_path / "out" / "table_3_detectors.csv").set_index("detector")
    assert strict.loc["loss_spike", "recall_strict"] == 7 / 8
    assert math.isnan(strict.loc["loss_spike", "lead_min_strict"])
    assert "reads lambda, which no log has" in " ".join(shown.split())


def test_the_authors_logs(authors_logs, tmp_path, capsys):
    out = ["--out", str(tmp_path / "out"), "--jobs", "1", "--bootstrap", "20", "--detectors", *DETECTORS]
    assert main(["--logs", str(authors_logs[0].parent), *out]) == 0
    capsys.readouterr()
    matrix = pd.read_csv(tmp_path / "out" / "table_2_scenario_matrix.csv").iloc[-1]
    assert (matrix["failed"], matrix["recovered"]) == (2, 1)
