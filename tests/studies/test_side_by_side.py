"""Two studies at once: what stands beside what, and that a single study looks as it always did."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import generate_all_figures
import generate_paper_tables
from rmetric.dataset.layout import EXTRA_SETS, FRESH, FRESH_2, TRANSFER, TRANSFER_2, TRANSFER_3, TRANSFER_4, TRANSFER_5
from rmetric.dataset.sources import companion
from rmetric.errors import UserError
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.held_out import ORACLE, held_out, moved, oracle
from rmetric.evaluation.scores import Score
from rmetric.evaluation.studies import load_extra_sets, load_studies
from rmetric.reporting.table import Column, Table, number, to_latex, to_screen
from studies import captions
from studies.catalogue import CATALOGUE, Catalogue, Description, Inputs, Part, Row
from studies.paper import reproduce
from studies.paper.figures import ablation, curves, draw_figures, failing_run, lead_times, result
from studies.paper.results import evaluators
from studies.paper.tables import build_tables
from studies.paper.tables.headline import rows_of
from studies.real_runs.publish import write_data_set
from tests.evaluation.builders import build_logs
from tests.studies.test_figures import assert_texts_are_clear

pytestmark = pytest.mark.slow
DETECTORS = ["loss_spike", "r_metric", "grad_norm", "robust_z"]
TINY = ("tiny-llama", "tiny-mistral")
REAL = {"models": TINY, "backend": "torch", "optimizer": "adamw", "step_time_s": 0.02}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A simulated study, and a real one with the sets beside it, as a data set."""
    folder = tmp_path_factory.mktemp("studies")
    simulated, real = build_logs(folder / "logs"), build_logs(folder / "logs_REAL", seed=50, **REAL)
    transfer = build_logs(folder / "logs_REAL_TRANSFER", seed=100, **{**REAL, "optimizer": "sgd"})
    for log in transfer.glob("*.jsonl"):
        log.write_text(log.read_text(encoding="utf-8").replace("LR_SPIKE", "LARGE_LR"), encoding="utf-8")
    fresh = build_logs(folder / "logs_REAL_FRESH", seed=150, **REAL)
    again = build_logs(folder / "logs_REAL_TRANSFER_2", seed=200, **{**REAL, "optimizer": "sgd"})
    later = build_logs(folder / "logs_REAL_FRESH_2", seed=250, **REAL)
    more = build_logs(folder / "logs_REAL_TRANSFER_3", seed=300, **{**REAL, "optimizer": "sgd"})
    rest = [
        build_logs(folder / f"logs_REAL_TRANSFER_{number}", seed=100 * number, **{**REAL, "optimizer": "sgd"})
        for number in (4, 5)
    ]
    file = folder / "real.parquet"
    for logs, part in zip([transfer, fresh, again, later, more, *rest], EXTRA_SETS, strict=True):
        write_data_set(logs, companion(file, part), jobs=1)
    return [simulated, write_data_set(real, file, jobs=1).path]


@pytest.fixture(scope="module")
def studies(sources: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Evaluator]:
    return evaluators(load_studies(sources, 1), DETECTORS, cache=tmp_path_factory.mktemp("c"), jobs=1, draws=50)


@pytest.fixture(scope="module")
def beside(sources: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Evaluator]]:
    """The sets beside the real study."""
    found = {part: load_extra_sets(part, {"real": sources[1]}, 1) for part in EXTRA_SETS}
    options = {"jobs": 1, "draws": 50}
    return {
        part: evaluators(study, DETECTORS, cache=tmp_path_factory.mktemp("c"), **options)
        for part, study in found.items()
    }


@pytest.fixture(scope="module")
def target(beside: dict[str, dict[str, Evaluator]]) -> Evaluator:
    return beside[TRANSFER]["real"]


@pytest.fixture(scope="module")
def tables(studies: dict[str, Evaluator], beside: dict[str, dict[str, Evaluator]]) -> dict[str, Table]:
    return {table.name: table for table in build_tables(Inputs(studies, beside))}


@pytest.fixture(scope="module")
def alone(studies: dict[str, Evaluator]) -> dict[str, list[Table]]:
    """The tables of each study alone."""
    return {study: build_tables(Inputs({study: ev})) for study, ev in studies.items()}


def test_latex_can_write_all_that_tables_of_both_studies_say(tables: dict[str, Table]) -> None:
    for table in tables.values():
        assert "U+" not in to_latex(table), table.name


# --- Which studies ---------------------------------------------------------------------------------------------------


def test_studies_are_called_by_their_backend(sources: list[Path], tmp_path: Path) -> None:
    assert list(load_studies(sources, 1)) == ["simulated", "real"]
    assert list(load_studies(sources[::-1], 1)) == ["real", "simulated"]
    other = build_logs(tmp_path / "again")
    assert list(load_studies([sources[0], other], 1)) == ["logs", "again"]
    with pytest.raises(UserError, match="twice"):
        load_studies([sources[0], sources[0]], 1)


@pytest.mark.parametrize(
    ("part", "fault", "seed"), [(TRANSFER, "LARGE_LR", 100), (FRESH, "LR_SPIKE", 150), (FRESH_2, "LR_SPIKE", 250)]
)
def test_a_set_is_found_beside_its_study(sources: list[Path], part: str, fault: str, seed: int) -> None:
    folder = sources[0].with_name("logs_REAL")
    found = load_extra_sets(part, {"simulated": sources[0], "folder": folder, "file": sources[1]}, 1)
    assert set(found) == {"folder", "file"}
    assert [run.name for run in found["folder"].runs] == [run.name for run in found["file"].runs]
    assert {run.fault for run in found["file"].runs} == {"NONE", fault}
    assert min(run.config["seed"] for run in found["file"].runs) >= seed
    assert not load_extra_sets(part, {"file": f"{sources[1]}:{part}"}, 1)


# --- Tables ----------------------------------------------------------------------------------------------------------


def test_one_study_alone_has_no_column_of_studies(alone: dict[str, list[Table]]) -> None:
    assert not any("study" in table.frame for table in alone["simulated"] if not table.name.startswith("headline"))


def test_rows_about_the_same_are_neighbours(tables: dict[str, Table], studies: dict[str, Evaluator]) -> None:
    order = ["r_metric", "loss_spike", "grad_norm", "robust_z"]
    for name in ("table_3_detectors", "table_3b_strict", "table_3c_budget", "table_3d_required_lead"):
        rows = [(row["detector"], row["study"]) for row in tables[name].rows]
        assert rows == [(detector, study) for detector in order for study in ("simulated", "real")]
    for row in tables["table_3_detectors"].rows:
        assert row["f1_strict"] == studies[row["study"]].summary(row["detector"], "strict")["f1"]  # type: ignore[index]
    assert [column.key for column in tables["table_4_fault_types"].columns][:3] == ["fault", "severity", "study"]


def test_tables_of_architectures_stand_one_below_the_other(tables: dict[str, Table]) -> None:
    for name in ("table_2_scenario_matrix", "table_7_transfer", "table_11_weights"):
        found = [str(row["study"]) for row in tables[name].rows]
        assert found == sorted(found, reverse=True)  # simulated, then real
        assert tables[name].columns[0].key == "study"


def test_what_both_studies_share_is_said_once(tables: dict[str, Table]) -> None:
    assert "study" not in tables["table_1_approaches"].frame
    caption = tables["table_3_detectors"].caption
    assert caption.count("Strict protocol:") == 1
    assert caption.count("12 runs:") == 1  # of both studies alike
    assert [row["study"] for row in tables["headline"].rows].count("the paper") == 1


def toy(part: Callable[[tuple[int, list[str]]], Part], **options: bool) -> Description[tuple[int, list[str]]]:
    return Description(
        name="table_1_toy",
        title="Toy",
        caption="Both. {runs} {interval}",
        columns=[Column("fault", "Fault"), Column("recall", "Recall")],
        part=part,
        needs=lambda inputs: {},
        about=("fault",),
        **options,
    )


def made(source: tuple[int, list[str]]) -> Part:
    value, notes = source
    rows: list[Row] = [{"fault": "X", "recall": value}, {"fault": "Y", "recall": 0}]
    return Part(rows, {"runs": f"{value} runs.", "interval": "95 %."}, notes)


def test_facts_and_notes_that_differ_name_their_study() -> None:
    both = toy(made).table({"simulated": (1, ["n."]), "real": (2, ["n.", "m."])})
    assert both is not None
    assert both.title == "Table 1: Toy"
    assert both.caption == "Both. Simulated: 1 runs. Real: 2 runs. 95 %."
    assert [column.title for column in both.columns] == ["Fault", "Study", "Recall"]
    assert list(both.notes) == ["n.", "Real: m."]
    assert both.frame["recall"].tolist() == [1, 2, 0, 0]
    assert both.frame["study"].tolist() == ["simulated", "real"] * 2


def test_rows_that_all_studies_share_can_stand_once() -> None:
    shared = toy(made, shared=True).table({"simulated": (1, []), "real": (2, [])})
    assert shared is not None
    assert shared.frame["study"].tolist() == ["simulated", "real", "all"]
    same = toy(made, shared=True).table({"simulated": (1, []), "real": (1, [])})
    assert same is not None and list(same.frame) == ["fault", "recall"]


def test_a_table_that_no_study_has_is_none() -> None:
    assert toy(lambda source: None).table({"simulated": (1, [])}) is None
    assert toy(made).table({}) is None


def test_a_number_is_taken_once_and_asked_for_by_its_group() -> None:
    known = Catalogue()
    known.add(toy(made))
    with pytest.raises(ValueError, match="1 is registered already"):
        known.add(toy(made))
    with pytest.raises(UserError, match="unknown table '99'"):
        known.chosen(["99"])
    assert [each.number for each in CATALOGUE.chosen(["3"])] == ["3", "3b", "3c", "3d"]
    assert [each.number for each in CATALOGUE.chosen(["3b", "headline"])] == ["3b", "headline", "headline_full"]


def test_the_ledger_has_a_row_a_study(tables: dict[str, Table], studies: dict[str, Evaluator]) -> None:
    rows = {(row["claim"], row["protocol"], row["study"]): row["ours"] for row in tables["table_8_claims"].rows}
    f1 = {study: ev.summary("r_metric", "strict")["f1"] for study, ev in studies.items()}
    assert rows["F1 in simulation", "strict", "simulated"] == f1["simulated"]
    assert ("F1 in simulation", "strict", "real") not in rows
    assert rows["F1 in real runs", "strict", "real"] == f1["real"]
    assert ("F1 in real runs", "strict", "simulated") not in rows
    claim = "mean lead (steps)"
    for protocol in ("paper", "strict"):
        found = [rows.get((claim, protocol, study), rows.get((claim, protocol, "all"))) for study in studies]
        assert all(isinstance(value, Score) for value in found)
    assert ("overhead (% of training time)", "–", "simulated") not in rows
    assert isinstance(rows["overhead (% of training time)", "–", "real"], Score)
    assert rows["weight of λ", "–", "all"] == 0.1


def test_tables_of_real_runs_follow_and_need_a_real_study(
    tables: dict[str, Table], alone: dict[str, list[Table]]
) -> None:
    names, own = list(tables), ["table_12_risk", "table_13_healing", "table_14_diagnosis", "table_14b_confusion"]
    pair = [name for name in names if name.startswith("table_15")]
    ratio = ["table_17_overhead_ratio", "table_17b_overhead_assumptions"]
    assert names[names.index("table_11_weights") + 1 :] == [
        *own,
        *pair,
        *ratio,
        "table_18_fresh",
        "table_18b_fresh_2",
        "headline",
        "headline_full",
    ]
    assert len(pair) == 3
    for name in (*own, *ratio):
        assert "study" not in {column.key for column in tables[name].columns}  # of the real one alone
    simulated, real = ({table.name for table in alone[study]} for study in ("simulated", "real"))
    assert not simulated & {*own, *pair, *ratio}
    assert {*own, *ratio} <= real and not real & {*pair}


def test_tables_keep_to_the_screen(tables: dict[str, Table]) -> None:
    for table in tables.values():
        text = to_screen(table, 120)
        assert max(map(len, text.splitlines())) <= 120, table.name
    assert to_screen(tables["table_3_detectors"], 120).count("Study") > 1  # each panel says whose row it is


# --- Held out, transfer, weights -------------------------------------------------------------------------------------


def test_the_held_out_comparison_is_of_the_score_half(studies: dict[str, Evaluator]) -> None:
    ev = studies["real"]
    found = {item.name: item for item in held_out(ev)}
    assert (next(iter(found)), list(found)[-1]) == ("robust_z", ORACLE)
    values = [item.scores["f1"].value for item in list(found.values())[1:-1]]
    assert values == sorted(values, reverse=True)
    assert found["robust_z"].less_reference is None
    item, fitted = found["grad_norm"], ev.within_budget("grad_norm")
    assert fitted.counts is not None
    assert item.scores["f1"] == ev.summary_of(fitted.counts, ev.halves.score)["f1"]
    assert item.false_alarms == int(fitted.counts.fp[ev.halves.score].sum())
    # onset 305, first record with the fault 310, failure 400
    assert item.scores["mean_share"].value == pytest.approx((400 - 310) / (400 - 305))
    assert found[ORACLE].scores["mean_share"].value == pytest.approx((400 - 310) / (400 - 305))
    assert oracle(ev).tp.sum() == ev.warnable == 4


def test_a_missed_run_used_none_of_its_time(studies: dict[str, Evaluator]) -> None:
    ev = studies["simulated"]
    never = ev.summary("grad_norm", "strict", 1e9)
    assert never["mean_share"].value == 0.0
    assert not never["mean_share_warned"].defined


def test_transfer_is_scored_with_the_thresholds_of_the_study(
    studies: dict[str, Evaluator], target: Evaluator, tables: dict[str, Table]
) -> None:
    ev = studies["real"]
    for item in moved(ev, target):
        if item.name != ORACLE:
            assert item.threshold.value == ev.within_budget(item.name).threshold
            assert item.counts is not None
            assert item.scores["f1"] == target.summary_of(item.counts)["f1"]
    table = tables["table_10_unseen"]
    titles = {column.title for column in table.columns}
    assert {"F1, tiny-llama, sgd", "F1, tiny-mistral, sgd", "Recall, unseen faults"} <= titles
    assert "Unseen faults: LARGE_LR." in table.caption
    rows = {row["detector"]: row for row in table.rows}
    assert list(rows)[-2:] == ["r_metric, fitted weights", "oracle"]
    assert rows["grad_norm"]["recall_unseen"] == Score(1.0, *_ends(rows["grad_norm"]["recall_unseen"]))


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (FRESH, "table_18_fresh"),
        (TRANSFER_2, "table_10b_unseen_2"),
        (TRANSFER_3, "table_10c_unseen_3"),
        (TRANSFER_4, "table_10d_unseen_4"),
        (TRANSFER_5, "table_10e_unseen_5"),
        (FRESH_2, "table_18b_fresh_2"),
    ],
)
def test_other_seeds_are_scored_with_the_thresholds_of_the_study(
    part: str,
    name: str,
    studies: dict[str, Evaluator],
    beside: dict[str, dict[str, Evaluator]],
    tables: dict[str, Table],
) -> None:
    ev, seeds = studies["real"], beside[part]["real"]
    rows = {row["detector"]: row for row in tables[name].rows}
    for item in moved(ev, seeds):
        if item.name != ORACLE:
            assert rows[item.name]["threshold"] == Score(ev.within_budget(item.name).threshold)
            assert rows[item.name]["f1"] == seeds.summary_of(item.counts)["f1"]  # type: ignore[arg-type]
    assert not any(column.title.startswith("Recall, ") for column in tables[name].columns)


def test_captions_of_held_out_tables_name_columns_that_are_there(tables: dict[str, Table]) -> None:
    for name, table in tables.items():
        if name.startswith(("table_9", "table_10", "table_18")):
            titles = {column.title for column in table.columns}
            assert ("beside it" in table.caption) == ("Share, warned runs" in titles), name
            (compared,) = re.findall(r"([^.]+): difference of F1", table.caption)
            assert compared.strip() in titles, name
            assert "could warn the others" not in table.caption, name  # every failed run could be warned


def test_what_is_said_of_brackets_and_of_both_studies_is_true_and_said_once(tables: dict[str, Table]) -> None:
    for table in tables.values():
        cells = [cell for row in table.rows for cell in row.values() if isinstance(cell, Score)]
        assert "In brackets" not in table.caption or any(cell.has_interval for cell in cells), table.name
    cost = tables["table_6_cost_benefit"].caption
    assert cost.count("restarts cost the same") == 1


def test_leads_of_fast_steps_are_not_all_rounded_to_nothing(tables: dict[str, Table]) -> None:
    (column,) = [column for column in tables["table_3_detectors"].columns if column.key == "lead_min_strict"]
    assert float(number(10 * 0.02 / 60, column.digits)) > 0  # ten steps of 20 ms
    assert "255 steps are the paper's mean lead." in tables["table_3d_required_lead"].caption


def test_the_headlines_name_the_paper_s_number_in_the_same_way(
    tables: dict[str, Table], alone: dict[str, list[Table]]
) -> None:
    for made in (tables, {table.name: table for table in alone["real"]}):
        for name in ("headline", "headline_full"):
            rows = [row for row in made[name].rows if row.get("f1_paper") == captions.PAPER_F1]
            assert [(row["study"], row["what"]) for row in rows] == [("the paper", "R-Metric")]


def _ends(score: object) -> tuple[float, float]:
    assert isinstance(score, Score)
    return score.low, score.high


def test_weights_are_within_their_intervals(tables: dict[str, Table], studies: dict[str, Evaluator]) -> None:
    rows = [row for row in tables["table_11_weights"].rows if row["study"] == "real"]
    assert [row["fitted_on"] for row in rows] == ["tiny-llama", "tiny-mistral", "all", "the paper's"]
    for row in rows[:3]:
        weights = [row[f"weight_{place}"] for place in range(3)]
        assert sum(weight.value for weight in weights) == pytest.approx(1.25)  # type: ignore[union-attr]
        known = [weight for weight in weights if weight.has_interval]  # type: ignore[union-attr]
        assert all(weight.low <= weight.high for weight in known)  # type: ignore[union-attr]
    assert [rows[3][f"weight_{place}"].value for place in range(3)] == [0.1, 0.45, 0.7]  # type: ignore[union-attr]


# --- Figures ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_figures_of_two_studies_read_well(studies: dict[str, Evaluator]) -> None:
    bars = {study: ablation.bars(ev) for study, ev in studies.items()}
    shown = {study: lead_times.select(ev) for study, ev in studies.items()}
    names = curves.chosen(list(studies.values()))
    chosen = {study: failing_run.Chosen.of(ev) or pytest.fail("nothing to choose") for study, ev in studies.items()}
    columns = curves.columns_of(studies)
    for figure in (
        result.figure({study: rows_of(ev) for study, ev in studies.items()}),
        ablation.figure(studies, bars),
        lead_times.figure(studies, shown),
        *(curves.figure([column for column in columns if column.protocol == p], names) for p in ("strict", "paper")),
        failing_run.figure(failing_run.close_ups(chosen)),
    ):
        assert_texts_are_clear(figure)
        assert figure.get_figheight() <= 9.5


@pytest.mark.long
def test_every_figure_shows_both_studies(studies: dict[str, Evaluator]) -> None:
    drawings = {drawing.name: drawing for drawing in draw_figures(Inputs(studies))}
    assert list(drawings) == [
        "figure_0_result", "figure_1_concept", "figure_2_failing_run",
        "figure_3_curves", "figure_3b_curves_paper", "figure_4_lead_times",
        "figure_5_ablation_transfer", "figure_6_reliability", "figure_7_confusion", "figure_8_simulated_vs_real",
        "figure_9_overhead_ratio",
    ]  # fmt: skip
    for name, drawing in drawings.items():
        assert drawing.files["png"].startswith(b"\x89PNG")
        if name[7] in "02345":
            assert "simulated, real study." in drawing.caption
    run = studies["real"].study.runs[1].name
    with pytest.raises(UserError, match="no log is named nobody; --run takes one such as run_"):
        draw_figures(Inputs(studies), ["2"], "nobody")
    assert f"`{run}`" in draw_figures(Inputs(studies), ["2"], run)[0].caption


def test_figures_that_need_real_runs_say_so(studies: dict[str, Evaluator]) -> None:
    with pytest.raises(UserError, match=r"Figure 6 needs one real study; add data/real_runs\.parquet to --logs"):
        draw_figures(Inputs({"": studies["simulated"]}), ["6"])
    with pytest.raises(
        UserError, match="Figure 8 needs one simulated and one real study, no other; --logs gives 1, 1 of"
    ):
        draw_figures(Inputs({"": studies["real"]}), ["8"])
    with pytest.raises(UserError, match="Figure 6 needs one real study; --logs gives 2, 2 of them real"):
        draw_figures(Inputs({"one": studies["real"], "two": studies["real"]}), ["6"])


def test_few_curves_are_drawn_of_many_detectors(studies: dict[str, Evaluator], monkeypatch) -> None:
    monkeypatch.setattr(curves, "MOST_CURVES", 2)
    names = curves.chosen(list(studies.values()))
    assert names[0] == "r_metric" and len(names) == 2
    precision = {
        name: sum(ev.curve(name, "strict").average_precision().value for ev in studies.values())
        for name in DETECTORS
        if name != "r_metric"
    }
    assert precision[names[1]] == max(precision.values())
    assert "2 of 4 detectors" in curves.draw({"": studies["real"]})[0].caption


# --- The scripts -----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_the_tables_script_takes_both(sources: list[Path], tmp_path: Path, capsys) -> None:
    options = ["--jobs", "1", "--bootstrap", "30", "--detectors", "r_metric", "grad_norm"]
    out = ["--out", str(tmp_path / "tables"), *options]
    assert generate_paper_tables.main(["--logs", *map(str, sources), *out]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert "from 108 logs" in shown.out  # those of the sets beside the study as well
    ledger = pd.read_csv(tmp_path / "tables" / "table_8_claims.csv")
    assert {"study", "ours"} <= {*ledger.columns}
    assert (tmp_path / "tables" / "table_10_unseen.csv").is_file()
    kept = {path.relative_to(tmp_path / "tables" / "cache").parent.as_posix() for path in tmp_path.rglob("*.npy")}
    assert kept == {"simulated", "real", *EXTRA_SETS}


def test_the_scripts_know_the_numbers_of_tables_and_figures(capsys) -> None:
    assert generate_paper_tables.main(["--tables", "99"]) == 2
    assert "unknown table '99' (known: 1, 2, 3," in capsys.readouterr().err


def test_some_tables_alone(studies: dict[str, Evaluator], tables: dict[str, Table]) -> None:
    assert build_tables(Inputs(studies), ["headline"]) == [tables["headline"], tables["headline_full"]]
    assert [table.name for table in build_tables(Inputs(studies), ["2", "5"])] == [
        "table_2_scenario_matrix", "table_5_threshold", "table_5b_ablation",
    ]  # fmt: skip


@pytest.mark.long
def test_the_figures_script_takes_both(sources: list[Path], tmp_path: Path, capsys) -> None:
    out = ["--out", str(tmp_path), "--jobs", "1", "--bootstrap", "30", "--figures", "3", "--detectors", *DETECTORS]
    assert generate_all_figures.main(["--logs", *map(str, sources), *out]) == 0
    assert "2 figures from 24 logs" in capsys.readouterr().out
    assert (tmp_path / "figure_3b_curves_paper.pdf").is_file()


@pytest.mark.long
def test_at_once_they_are_what_the_two_scripts_make(sources: list[Path], tmp_path: Path) -> None:
    options = ["--logs", *map(str, sources), "--jobs", "1", "--bootstrap", "30", "--detectors", "r_metric", "robust_z"]
    assert reproduce.main([*options, "--out", str(tmp_path / "once")]) == 0
    for script, part in ((generate_paper_tables, "tables"), (generate_all_figures, "figures")):
        assert script.main([*options, "--out", str(tmp_path / "twice" / part)]) == 0
    once, twice = (
        {
            path.relative_to(root): path.read_bytes()
            for path in root.rglob("*")
            if path.suffix in (".csv", ".tex", ".png")
        }
        for root in (tmp_path / "once", tmp_path / "twice")
    )
    assert len(once) > 40 and once == twice


def test_at_once_tells_of_a_mistake_in_one_line(capsys) -> None:
    assert reproduce.main(["--detectors", "r_metrics"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
