"""Figures 1 to 5: they exist for any logs, read well, and are the same bytes for the same logs."""

from __future__ import annotations

import itertools
import re
import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from generate_all_figures import NUMBERS, main
from rmetric.detectors import ROBUST
from rmetric.evaluation.ablation import ablation as variants
from rmetric.evaluation.evaluator import Evaluator
from rmetric.evaluation.scores import recall, totals
from rmetric.evaluation.studies import load_study
from rmetric.log_writer import encode_event
from rmetric.metric import RMetric
from rmetric.reporting import style
from studies.catalogue import Inputs
from studies.paper.figures import FIGURES, ablation, concept, curves, draw_figures, failing_run, lead_times, result
from studies.paper.plan import StudyPlan
from studies.paper.run import simulate_study
from studies.paper.tables.headline import rows_of

NAMES = {
    "figure_0_result",
    "figure_1_concept",
    "figure_2_failing_run",
    "figure_3_curves",
    "figure_4_lead_times",
    "figure_5_ablation_transfer",
}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small study: both halves have failed runs."""
    folder = tmp_path_factory.mktemp("logs")
    faults = ("GRADIENT_EXPLOSION", "DATA_CORRUPTION", "NETWORK_DEGRADATION")
    architectures = ("llama-3-8b", "gpt-4-moe")
    plan = StudyPlan(
        steps=1500, repetitions=2, severities=("high",), faults=faults, architectures=architectures, controls=2
    )
    simulate_study(plan, folder)
    return folder


@pytest.fixture(scope="module")
def evaluator(logs: Path) -> Evaluator:
    return Evaluator.of(load_study(logs, 1), jobs=1, draws=50)


@pytest.fixture(scope="module")
def drawn(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the script filled."""
    out = tmp_path_factory.mktemp("figures")
    assert main(["--logs", str(logs), "--out", str(out), "--jobs", "1", "--bootstrap", "50"]) == 0
    return out


def only_controls(folder: Path) -> Evaluator:
    simulate_study(
        StudyPlan(steps=300, faults=("LR_SPIKE",), architectures=("mistral-7b",), controls=3, repetitions=1), folder
    )
    for log in folder.glob("*lr_spike*"):
        log.unlink()
    return Evaluator.of(load_study(folder, 1), jobs=1, draws=20)


def without_hardware_and_validation(folder: Path) -> Evaluator:
    """Sparse logs of another backend, as real runs of one seed may leave them."""
    for number, (fault, failure) in enumerate((("NONE", None), ("LR_SPIKE", 420), ("DATA_CORRUPTION", 431))):
        config = {
            "experiment_id": f"real_{number}", "backend": "torch", "model_type": "tiny $llama_$", "seed": 0,
            "total_training_steps": 600, "fault_injection": {"type": fault, "trigger_step": None},
        }  # fmt: skip
        events: list[dict[str, object]] = [{"event": "EXPERIMENT_START", "config": config}]
        for step in range(0, failure or 600, 3):
            loss = 5.0 / (1.0 + step / 50.0) + (3.0 if failure and step > 405 else 0.0)
            events.append({"event": "METRICS", "step": step, "training_loss": loss, "sigma_sq": 0.1 + loss % 0.1})
        if failure:
            events.insert(136, {"event": "FAULT_INJECTED", "step": 405})
            events.append({"event": "EXPERIMENT_FAILURE", "step": failure, "reason": "DIVERGED"})
        else:
            events.append({"event": "EXPERIMENT_SUCCESS", "step": 600, "outcome": "clean"})
        (folder / f"real_{number}.jsonl").write_bytes(b"".join(map(encode_event, events)))
    return Evaluator.of(load_study(folder, 1), jobs=1, draws=20)


@pytest.fixture(
    scope="module", params=["study", pytest.param("one half failed", marks=pytest.mark.long), "controls", "sparse"]
)
def any_evaluator(request: pytest.FixtureRequest, logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Evaluator:
    """Logs of every kind that the figures must stand."""
    folder = tmp_path_factory.mktemp("any")
    if request.param == "study":
        return request.getfixturevalue("evaluator")
    if request.param == "controls":
        return only_controls(folder)
    if request.param == "sparse":
        return without_hardware_and_validation(folder)
    for log in logs.glob("*_rep1.jsonl"):
        shutil.copy(log, folder)
    return Evaluator.of(load_study(folder, 1), jobs=1, draws=20)


@pytest.fixture(scope="module")
def any_figures(any_evaluator: Evaluator) -> dict[str, Figure]:
    """Their figures, laid out once: the tests look, and change nothing."""
    figures = data_figures(any_evaluator)
    for figure in figures.values():
        style.lay_out(figure)
    return figures


def data_figures(ev: Evaluator, footnote: str = "a footnote of the committed sample") -> dict[str, Figure]:
    studies = {"": ev}
    figures = {
        "0": result.figure({"": rows_of(ev)}, footnote),
        "3": curves_figure(ev, footnote),
        "4": lead_times.figure(studies, {"": lead_times.select(ev)}, footnote),
        "5": ablation.figure(studies, {"": ablation.bars(ev)}, footnote),
    }
    chosen = failing_run.Chosen.of(ev)
    if chosen is not None:
        figures["2"] = failing_run.figure(failing_run.whole_and_close_up(chosen), footnote)
    return figures


def curves_figure(ev: Evaluator, footnote: str = "") -> Figure:
    return curves.figure(curves.columns_of({"": ev}), curves.chosen([ev]), footnote)


# --- The script ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_all_figures_are_there_in_both_formats(drawn: Path) -> None:
    for name in NAMES:
        assert (drawn / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        png = (drawn / f"{name}.png").read_bytes()
        assert png.startswith(b"\x89PNG")
        width, height = struct.unpack(">II", png[16:24])
        assert width == round(style.WIDTH_IN * style.DPI), "figures keep to the width of a page"
        assert 0 < height <= 9.5 * style.DPI
        pixels_a_metre = struct.unpack(">I", png[png.index(b"pHYs") + 4 :][:4])[0]
        assert round(pixels_a_metre * 0.0254) == style.DPI


@pytest.mark.slow
def test_pdfs_embed_truetype_fonts_and_no_clock(drawn: Path) -> None:
    for name in NAMES:
        pdf = (drawn / f"{name}.pdf").read_bytes()
        assert b"/FontFile2" in pdf
        assert b"/Type3" not in pdf
        assert b"/CreationDate" not in pdf


@pytest.mark.slow
def test_captions_say_what_is_shown(drawn: Path) -> None:
    text = (drawn / "captions.md").read_text()
    assert all(f"`{name}.png`" in text for name in NAMES)
    assert "16 runs: " in text
    assert "censored" in text
    assert "50 resamples" in text
    assert "Strict protocol" in text
    assert "Paper protocol" in text
    assert re.search(r"All made by `python generate_all_figures\.py --logs .* --bootstrap 50`", text)
    assert "nan" not in text


@pytest.mark.long
def test_the_same_logs_give_the_same_bytes(logs: Path, drawn: Path, tmp_path: Path) -> None:
    arguments = ["--logs", str(logs), "--out", str(tmp_path), "--cache", str(drawn / "cache"), "--bootstrap", "50"]
    assert main([*arguments, "--figures", "2", "3", "4", "5", "--jobs", "2"]) == 0
    files = [path for path in tmp_path.iterdir() if path.suffix in (".png", ".pdf")]
    assert len(files) == 8
    for path in files:
        assert path.read_bytes() == (drawn / path.name).read_bytes(), path.name


@pytest.mark.slow
def test_some_figures_only(logs: Path, drawn: Path, tmp_path: Path) -> None:
    arguments = ["--logs", str(logs), "--out", str(tmp_path), "--cache", str(drawn / "cache"), "--figures", "1"]
    assert main(arguments) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "captions.md", "figure_1_concept.pdf", "figure_1_concept.png",
    ]  # fmt: skip


@pytest.mark.slow
def test_the_committed_sample_says_so_and_scores_of_the_tables_are_used_again(
    logs: Path, drawn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(logs, tmp_path / "logs" / "sample")
    shutil.copytree(drawn / "cache", tmp_path / "tables" / "cache")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "tables" / "cache").iterdir()}
    out = tmp_path / "figures"
    options = ["--figures", "3", "--jobs", "1", "--bootstrap", "50"]
    assert main(["--logs", str(tmp_path / "logs"), "--out", str(out), *options]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "tables" / "cache").iterdir()} != {}
    assert not (out / "cache").exists()
    assert "committed sample" in capsys.readouterr().out
    assert "Committed sample" in (out / "captions.md").read_text()
    figure = (out / "figure_3_curves.png").read_bytes()
    assert figure != (drawn / "figure_3_curves.png").read_bytes(), "the footnote is missing"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [["--run", "run_001_nobody"], ["--logs", "nowhere"], ["--figures", "6"], ["--detectors", "r_metric", "r_metrik"]],
)
def test_bad_input_is_one_line(
    logs: Path, drawn: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    common = ["--logs", str(logs), "--out", str(tmp_path), "--cache", str(drawn / "cache"), "--jobs", "1"]
    assert main([*common, *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ")
    assert "\n" not in error
    assert not list(tmp_path.glob("*.png"))


# --- What can be read ------------------------------------------------------------------------------------------------


def shown_texts(figure: Figure) -> list[tuple[str, Bbox]]:
    """Every text that is drawn, with its place in pixels."""
    figure.draw_without_rendering()
    texts: list[Text] = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for ax in figure.axes:
        texts += [*ax.texts, ax.title, ax._left_title, ax._right_title]  # type: ignore[attr-defined]
        if ax.axison:
            texts += [ax.xaxis.label, ax.yaxis.label, *_tick_labels(ax)]
    return [
        (text.get_text(), text.get_window_extent()) for text in texts if text.get_visible() and text.get_text().strip()
    ]


def _tick_labels(ax: Axes) -> Iterator[Text]:
    for axis, limits in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        low, high = sorted(limits)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if low <= tick.get_loc() <= high:
                yield from (label for label in (tick.label1, tick.label2) if label.get_visible())


def assert_texts_are_clear(figure: Figure) -> None:
    texts = shown_texts(figure)
    page = figure.bbox
    for text, box in texts:
        inside = box.x0 >= page.x0 - 1 and box.x1 <= page.x1 + 1 and box.y0 >= page.y0 - 1 and box.y1 <= page.y1 + 1
        assert inside, f"{text!r} leaves the page"
    for (text, box), (other, place) in itertools.combinations(texts, 2):
        wide = min(box.x1, place.x1) - max(box.x0, place.x0)
        high = min(box.y1, place.y1) - max(box.y0, place.y0)
        assert wide < 1 or high < 1, f"{text!r} overlaps {other!r}"


def test_the_overlap_check_sees_an_overlap() -> None:
    figure = style.new_figure(2.0)
    figure.text(0.5, 0.5, "one")
    figure.text(0.51, 0.5, "other")
    with pytest.raises(AssertionError, match="overlaps"):
        assert_texts_are_clear(figure)


@pytest.mark.slow
def test_no_text_overlaps_in_any_data_figure(any_figures: dict[str, Figure]) -> None:
    """Nor is there a sign without a glyph: that is a warning of whoever lays out or draws, and so an error."""
    for figure in any_figures.values():
        assert_texts_are_clear(figure)


@pytest.mark.slow
def test_no_text_is_smaller_than_eight_points(any_figures: dict[str, Figure]) -> None:
    for figure in (*any_figures.values(), concept.figure(concept.concept())):
        assert figure.get_figwidth() <= 7.2
        assert min(text.get_fontsize() for text in figure.findobj(Text) if text.get_text()) >= 8.0


@pytest.mark.slow
def test_every_axis_is_named_with_its_unit(any_figures: dict[str, Figure]) -> None:
    unit = re.compile(r"\(.+\)|step|per 1,000|^fault$|^detector$|^weights")
    for number, figure in any_figures.items():
        by_row: dict[object, list[str]] = {}
        by_column: dict[object, list[str]] = {}
        for ax in figure.axes:
            spec = ax.get_subplotspec()
            assert spec is not None
            by_row.setdefault((ax.get_gridspec(), spec.rowspan.start), []).append(ax.get_ylabel())
            by_column.setdefault((ax.get_gridspec(), spec.colspan.start), []).append(ax.get_xlabel())
        for labels in (*by_row.values(), *by_column.values()):
            named = [label for label in labels if label]
            assert named, f"figure {number} has an axis without a name"
            assert all(unit.search(label) for label in named), named


def test_no_two_series_look_alike(evaluator: Evaluator) -> None:
    looks = style.looks([f"detector {number}" for number in range(30)], "detector 3")
    seen = {(look.color, str(look.line), look.marker) for look in looks.values()}
    assert len(seen) == 30
    figure = curves_figure(evaluator)
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(legend) == len(curves.chosen([evaluator])) == len(set(legend)) <= curves.MOST_CURVES


def random_state() -> tuple[list[int], list[float]]:
    """The state of NumPy's global generator: its numbers, and how many of them were drawn."""
    _, numbers, *drawn = np.random.get_state()  # noqa: NPY002
    return numbers.tolist(), drawn  # type: ignore[union-attr]


@pytest.mark.slow
def test_drawing_depends_on_no_settings_of_the_user_and_leaves_them_and_random_numbers_alone(
    evaluator: Evaluator, drawn: Path
) -> None:
    import matplotlib.pyplot as plt

    before = random_state()
    with matplotlib.rc_context({"font.size": 30.0, "axes.grid": True, "lines.linewidth": 9.0}):
        settings = dict(matplotlib.rcParams)
        drawings = draw_figures(Inputs({"": evaluator}), ["3", "4", "5"])
        assert dict(matplotlib.rcParams) == settings
    for drawing in drawings:
        files = {suffix: (drawn / f"{drawing.name}.{suffix}").read_bytes() for suffix in drawing.files}
        assert drawing.files == files, drawing.name
    assert random_state() == before
    assert plt.get_fignums() == []


# --- Figure 1 --------------------------------------------------------------------------------------------------------


def test_texts_of_the_concept_are_clear_of_each_other_and_inside_their_boxes() -> None:
    figure = concept.figure(concept.concept())  # a sign without a glyph is a warning here, and so an error
    assert_texts_are_clear(figure)
    boxes = [patch.get_window_extent() for patch in figure.axes[0].patches if type(patch).__name__ == "FancyBboxPatch"]
    for text in figure.axes[0].texts:
        if (text.get_gid() or "").startswith("node "):
            extent = text.get_window_extent()
            assert any(
                box.x0 < extent.x0 and extent.x1 < box.x1 and box.y0 < extent.y0 and extent.y1 < box.y1 for box in boxes
            )


def test_no_two_boxes_of_the_concept_overlap() -> None:
    figure = concept.figure(concept.concept())
    nodes = [patch for patch in figure.axes[0].patches if patch.get_zorder() == 3]
    assert len(nodes) == len(concept.concept().nodes)
    for one, other in itertools.combinations([node.get_window_extent() for node in nodes], 2):
        assert not one.overlaps(other)


def test_every_text_and_arrow_of_the_concept_is_drawn() -> None:
    diagram = concept.concept()
    ax = concept.figure(diagram).axes[0]
    drawn = {text.get_text() for text in ax.texts}
    assert {node.text for node in diagram.nodes} | {group.heading for group in diagram.groups.values()} <= drawn
    assert sum(type(patch).__name__ == "FancyArrowPatch" for patch in ax.patches) == len(diagram.edges)


def test_the_concept_shows_the_published_numbers() -> None:
    texts = " ".join(
        [*(node.text for node in concept.concept().nodes), *(edge.text for edge in concept.concept().edges)]
    )
    for number in ("0.10 λ′", "0.45 σ²′", "0.70 ΔL′", "R > 0.57", "1.25", "8 workers", "5 %"):
        assert number in texts
    assert RMetric.paper().threshold == 0.57


# --- Figures 2 to 5 --------------------------------------------------------------------------------------------------


def test_the_run_is_chosen_by_its_failure_and_always_the_same(evaluator: Evaluator) -> None:
    chosen = failing_run.choose(evaluator)
    assert chosen is not None
    run, truth, _ = chosen
    assert truth.kind == "failed"
    assert truth.reason in ("DIVERGED", "NAN_LOSS")
    incubations = sorted(
        item.incubation
        for item in evaluator.study.truths
        if item.incubation and item.reason in ("DIVERGED", "NAN_LOSS")
    )
    median = np.median(incubations)
    assert truth.incubation is not None
    assert abs(truth.incubation - median) == min(abs(value - median) for value in incubations)
    again = failing_run.choose(evaluator)
    assert again is not None
    assert again[0] is run


def test_the_twin_of_a_simulated_run_is_exact(evaluator: Evaluator) -> None:
    chosen = failing_run.choose(evaluator)
    assert chosen is not None
    run, truth, _ = chosen
    twin, origin = failing_run.twin_of(run, evaluator.study.runs)
    assert twin is not None
    assert "simulated anew" in origin
    assert twin.fault == "NONE"
    before = run.observations.step < truth.onset
    for name in ("training_loss", "validation_loss", "grad_norm", "sigma_sq", "lambda", "delta_l", "step_time_s"):
        np.testing.assert_array_equal(run.observations[name][before], twin.observations[name][: before.sum()])
    after = run.observations["training_loss"][-1]
    assert after > 1.03 * twin.observations["training_loss"][len(run.observations) - 1]


def test_a_log_of_another_simulator_gets_no_twin(evaluator: Evaluator) -> None:
    run, _, _ = failing_run.choose(evaluator) or pytest.fail("nothing to choose")
    changed = type(run)(run.name, {**run.config, "seed": run.config["seed"] + 1}, run.observations, run.events)
    assert failing_run.twin_of(changed, [])[0] is None
    assert (
        failing_run.twin_of(type(run)(run.name, {"backend": "simulator"}, run.observations, run.events), [])[0] is None
    )


def test_a_control_run_among_the_logs_is_the_twin(tmp_path: Path) -> None:
    ev = without_hardware_and_validation(tmp_path)
    run, _, _ = failing_run.choose(ev) or pytest.fail("nothing to choose")
    twin, _ = failing_run.twin_of(run, ev.study.runs)
    assert twin is not None
    assert twin.name == "real_0"


@pytest.mark.long
def test_any_run_can_be_shown(evaluator: Evaluator) -> None:
    for run, truth in zip(evaluator.study.runs, evaluator.study.truths, strict=True):
        if run.fault in ("NONE", "NETWORK_DEGRADATION"):
            alone = failing_run.Chosen(failing_run.Watched.of(run), None, truth, "")
            assert_texts_are_clear(failing_run.figure(failing_run.whole_and_close_up(alone)))
    control = next(run for run in evaluator.study.runs if run.fault == "NONE")
    caption = failing_run.draw({"": evaluator}, f"{control.name}.jsonl").caption
    assert "It is a control run; it has no twin." in caption
    assert "The run did not fail (clean)." in caption


def test_the_figure_marks_what_the_evaluation_counts(evaluator: Evaluator) -> None:
    strict, paper = (evaluator.counts("r_metric", protocol) for protocol in ("strict", "paper"))
    for index, (run, truth) in enumerate(zip(evaluator.study.runs, evaluator.study.truths, strict=True)):
        if truth.kind != "failed":
            continue
        assert truth.failure_step is not None
        watched = failing_run.Watched.of(run)
        for step, lead in ((watched.first_warning, strict.lead[index]), (watched.first_alert, paper.lead[index])):
            assert step == (None if np.isnan(lead) else truth.failure_step - lead)


def test_an_alert_of_an_episode_that_began_before_the_onset_is_told(evaluator: Evaluator) -> None:
    chosen = failing_run.Chosen.of(evaluator)
    assert chosen is not None and chosen.truth.onset is not None
    step = chosen.watched.step
    first = int(np.searchsorted(step, chosen.truth.onset))  # record of the warning time
    said = {}
    for alerts in ((first - 1, first), ()):
        r = np.zeros(len(step))
        r[[*alerts]] = 1.0
        watched = replace(chosen.watched, value=chosen.watched.value._replace(r=r))
        said[len(alerts)] = failing_run.account(replace(chosen, watched=watched))
    assert f"the alerts there (step {step[first]:,}) belong to an episode that began before the onset" in said[2]
    assert "counts it as missed. " in said[0]


def test_the_legend_has_only_the_marks_that_a_panel_shows(evaluator: Evaluator) -> None:
    chosen = failing_run.Chosen.of(evaluator)
    assert chosen is not None
    marks = {text for mark, text in failing_run.MARK_TITLES.items() if mark in ("onset", "failure")}
    onset, failure = chosen.truth.onset, chosen.truth.failure_step
    assert onset is not None and failure is not None
    column = failing_run.Column("close", chosen, (onset, failure))
    first = chosen.watched.first_alert
    assert first is not None and first < onset
    legend = [text.get_text().split(":")[0] for text in failing_run.figure([column]).legends[0].get_texts()]
    assert marks <= {*legend}
    assert failing_run.MARK_TITLES["first alert"] not in legend


@pytest.mark.slow
def test_the_twins_r_is_drawn(evaluator: Evaluator) -> None:
    figure = data_figures(evaluator)["2"]
    colors = {line.get_color() for line in figure.axes[-2].lines}
    assert failing_run.TWIN_LOOK["color"] in colors
    assert failing_run.RUN_LOOK["color"] in colors
    assert figure.axes[-2].get_ylabel().startswith("R ")


def test_operating_points_are_those_of_the_tables(evaluator: Evaluator) -> None:
    figure = curves_figure(evaluator)
    marks = {
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]))
        for line in figure.axes[1].lines
        if line.get_marker() not in ("None", "", None)
    }
    for name in curves.chosen([evaluator]):
        summary = evaluator.summary(name, "paper")
        if summary["precision"].defined:
            assert (summary["recall"].value, summary["precision"].value) in marks


def test_curves_that_are_not_defined_say_why(tmp_path: Path) -> None:
    figure = curves_figure(only_controls(tmp_path))
    for ax in figure.axes:
        assert "not defined: no run failed" in [text.get_text() for text in ax.texts]


def test_numbers_of_a_heat_map_contrast_with_their_cells() -> None:
    ax = Figure().subplots()
    shares = np.array([[0.0, 0.58], [np.nan, 0.9]])  # a cell without a value has no number
    seaborn.heatmap(shares, ax=ax, annot=True, cmap="Blues", vmin=0.0, vmax=1.0, cbar=False)
    style.legible(ax)
    colors = {text.get_text(): text.get_color() for text in ax.texts}
    assert colors == {"0": style.BLACK, "0.58": style.BLACK, "0.9": "white"}


def test_the_label_of_the_budget_hides_no_curve(evaluator: Evaluator) -> None:
    labels = [(text, ax) for ax in curves_figure(evaluator).axes for text in ax.texts if text.get_text() == "budget"]
    assert labels
    for text, ax in labels:
        assert text.get_bbox_patch() is None
        assert text.get_zorder() <= min(line.get_zorder() for line in ax.lines)


def test_a_fault_without_a_warning_is_shown_as_none_of_n(evaluator: Evaluator) -> None:
    shown = lead_times.select(evaluator)
    figure = lead_times.figure({"": evaluator}, {"": shown})
    labels = [label.get_text().replace("\n", " ") for label in figure.axes[0].get_yticklabels()]
    assert labels[0] == "all faults"
    assert set(labels[1:]) == {"GRADIENT EXPLOSION", "DATA CORRUPTION", "NETWORK DEGRADATION"}
    texts = [text.get_text() for text in figure.axes[0].texts]
    counts = [text for text in texts if re.fullmatch(r"\d+ of \d+", text)]
    assert len(counts) == len(labels) * len(shown.series)
    failed = evaluator.timeline.failed & shown.runs
    for series in shown.series:
        warned = failed & (series.counts.tp > 0)
        assert f"{warned.sum()} of {failed.sum()}" in counts


def test_thresholds_of_the_lead_times_are_not_fitted_to_the_runs_shown(evaluator: Evaluator) -> None:
    shown = lead_times.select(evaluator)
    assert not (shown.runs & evaluator.halves.fit).any()
    other = lead_times.best_other(evaluator)
    assert other is not None
    best = evaluator.within_budget(other)
    assert best.counts is not None
    for name, detector in evaluator.detectors.items():
        counts = evaluator.within_budget(name).counts
        if counts is not None and detector.causal and not name.startswith("r_metric"):
            fit = evaluator.halves.fit
            assert recall(totals(counts.of(fit))) <= recall(totals(best.counts.of(fit)))


def test_lead_times_of_the_r_metrics_alone_are_scored_on_the_other_half(logs: Path) -> None:
    shown = lead_times.select(Evaluator.of(load_study(logs, 1), ["r_metric", ROBUST], jobs=1, draws=20))
    assert [series.name for series in shown.series] == ["r_metric", ROBUST]
    assert shown.how[0].startswith("Thresholds: highest F1 within 0.1 false alarms")
    assert not any("other detector" in said for said in shown.how)


def test_the_ablation_is_that_of_the_tables(evaluator: Evaluator) -> None:
    bars = {(bar.name, bar.protocol): bar for bar in ablation.bars(evaluator)}
    for variant in variants(evaluator):
        assert bars[variant.name, variant.protocol] == variant
    for signal, name in (("λ", "lambda_only"), ("σ²", "sigma_sq_only"), ("ΔL", "delta_l_only")):
        for protocol in ("paper", "strict"):
            assert bars[f"{signal} alone", protocol].published == evaluator.summary(name, protocol)["f1"]


def test_every_figure_is_in_the_register_once() -> None:
    assert [figure.number for figure in FIGURES] == [*NUMBERS]
