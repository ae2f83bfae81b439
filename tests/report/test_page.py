"""The page in a real browser: what it shows, how it reacts, in every dress, and that it needs nothing from outside."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmetric.commands import main

Open = Callable[..., Any]
Write = Callable[..., Path]
PHONE = {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 3, "is_mobile": True, "has_touch": True}

RECORD_TEXTS = """
    const { fillText, clearRect } = CanvasRenderingContext2D.prototype;
    CanvasRenderingContext2D.prototype.clearRect = function (...area) {
        this.canvas.texts = [];
        clearRect.apply(this, area);
    };
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        this.canvas.texts.push({ text, right: x, left: x - this.measureText(text).width, align: this.textAlign });
        fillText.call(this, text, x, y);
    };
"""
"""Keeps what is written on each canvas, and where."""


@pytest.fixture
def pages(write_log: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Path]:
    """Writes the page of some logs with the command."""

    def made(*logs: Path) -> Path:
        out = tmp_path / "report.html"
        assert main(["report", *map(str, logs), "--out", str(out)]) == 0
        assert f"wrote {out}" in capsys.readouterr().out
        return out

    return made


def steps_shown(page: Any, panel: str = "training_loss") -> list[int]:
    """Steps that a chart names under the cursor at its left and at its right edge."""
    chart = page.locator(f"[data-panel={panel}] .u-over").first
    box = chart.bounding_box()
    read = []
    for x in (1, box["width"] - 2):
        chart.hover(position={"x": x, "y": 60})
        said = page.locator(f"[data-panel={panel}] .readout .entry").first.inner_text()
        read.append(int(said.removeprefix("step ").replace(",", "")))
    page.mouse.move(0, 0)
    return read


def shows_all(steps: list[int]) -> bool:
    """Whether these are the first and last of 400 steps, but for a pixel."""
    return steps[0] <= 3 and steps[1] >= 396


def test_one_run(pages: Callable[..., Path], write_log: Write, open_page: Open) -> None:
    page = open_page(pages(write_log("bad.jsonl", worse=1.0)))
    assert page.locator("h1").inner_text() == "Training report: bad"
    panels = page.locator(".panel h3").all_inner_texts()
    assert panels == ["Loss nats", "Gradient norm", "Robust R-Metric decades of rarity", "Learning rate"]
    assert "WORSE_LEVEL" in page.locator("#findings").inner_text()
    assert page.locator("#charts canvas").count() == 4


def test_hover_shows_the_values_of_the_step(pages: Callable[..., Path], write_log: Write, open_page: Open) -> None:
    page = open_page(pages(write_log("good.jsonl")))
    readout = page.locator("[data-panel=training_loss] .readout")
    assert "last values" in readout.inner_text()
    page.locator("[data-panel=training_loss] .u-over").hover(position={"x": 1, "y": 50})
    text = readout.inner_text()
    assert "step 0" in text and "training" in text and "validation" in text
    assert 3.9 < float(page.locator("[data-panel=training_loss] .readout b").first.inner_text()) < 4.1
    assert "step 0" in page.locator("[data-panel=grad_norm] .readout").inner_text()  # the cursors go together


def test_a_loss_that_is_not_finite_at_the_end_has_no_last_value(
    pages: Callable[..., Path], tmp_path: Path, open_page: Open
) -> None:
    log = tmp_path / "dead.jsonl"
    losses = [*(2.0 + 2.0 / step for step in range(1, 301)), *["NaN"] * 40]
    log.write_text("".join(f'{{"step": {step}, "loss": {loss}}}\n' for step, loss in enumerate(losses)))
    page = open_page(pages(log))
    panel = page.locator("[data-panel=training_loss]")
    assert panel.locator(".readout b").all_inner_texts()[0] == "not finite"
    assert "at step 299, not finite at the end." in (panel.locator(".plot").get_attribute("aria-label") or "")
    panel.locator(".u-over").hover(position={"x": 1, "y": 50})
    assert 3.9 < float(panel.locator(".readout b").first.inner_text()) < 4.1


def test_zoom_by_mouse_changes_all_charts_and_a_double_click_undoes_it(
    pages: Callable[..., Path], write_log: Write, open_page: Open
) -> None:
    page = open_page(pages(write_log("good.jsonl")))
    assert shows_all(steps_shown(page))
    box = page.locator("[data-panel=training_loss] .u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 40, steps=4)
    page.mouse.up()
    page.mouse.move(0, 0)
    for panel in ("training_loss", "grad_norm"):
        low, high = steps_shown(page, panel)
        assert 190 <= low <= 215 and 285 <= high <= 310
    page.locator("[data-panel=training_loss] .u-over").dblclick(position={"x": 90, "y": 40})
    assert shows_all(steps_shown(page, "grad_norm"))


def test_everything_can_be_done_by_keyboard(pages: Callable[..., Path], write_log: Write, open_page: Open) -> None:
    page = open_page(pages(write_log("good.jsonl")))
    chart = page.locator("[data-panel=training_loss] .plot")
    assert chart.get_attribute("aria-label").startswith("Chart: Loss. good, training:")
    chart.focus()
    page.keyboard.press("+")
    low, high = steps_shown(page)
    assert 95 <= low <= 105 and 295 <= high <= 305
    chart.focus()
    page.keyboard.press("0")
    page.keyboard.press("ArrowRight")
    assert "step" in page.locator("[data-panel=training_loss] .readout").inner_text()
    assert shows_all(steps_shown(page))


def test_a_finding_is_gone_to(pages: Callable[..., Path], write_log: Write, open_page: Open) -> None:
    page = open_page(pages(write_log("bad.jsonl", records=4000, since=3000, worse=1.0)))
    page.locator(".goto").first.click()
    assert 2000 < steps_shown(page)[0] < 3000


def test_several_runs_overlaid_side_by_side_and_hidden(
    pages: Callable[..., Path], write_log: Write, open_page: Open
) -> None:
    page = open_page(pages(*(write_log(f"run{index}.jsonl", seed=index) for index in range(3))))
    assert page.locator("[data-panel=training_loss] canvas").count() == 1
    page.get_by_role("button", name="Side by side").click()
    assert page.locator("[data-panel=training_loss] canvas").count() == 3
    page.locator("#legend button", has_text="run1").click()
    assert page.locator("[data-panel=training_loss] .chart-title").all_inner_texts() == ["run0", "run2"]
    page.get_by_role("button", name="Overlaid").click()
    assert "run1" not in page.locator("[data-panel=training_loss] .readout").inner_text()


def test_dark_mode_and_its_change_while_open(pages: Callable[..., Path], write_log: Write, open_page: Open) -> None:
    page = open_page(pages(write_log("good.jsonl")), color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    pixels = "document.querySelector('#charts canvas').toDataURL()"
    dark, dark_pixels = page.evaluate(ground), page.evaluate(pixels)
    assert max(map(int, dark.removeprefix("rgb(").rstrip(")").split(","))) < 60
    page.emulate_media(color_scheme="light")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.wait_for_function(f"before => {pixels} !== before", arg=dark_pixels)


def test_print_is_light_and_whole(pages: Callable[..., Path], write_log: Write, open_page: Open) -> None:
    page = open_page(pages(write_log("good.jsonl")), color_scheme="dark")
    page.evaluate(
        """addEventListener("beforeprint", () => {
            window.printed = [getComputedStyle(document.body).backgroundColor,
                              document.querySelector(".plot .uplot").offsetWidth];
        })"""
    )
    pdf = page.pdf()
    assert pdf.startswith(b"%PDF") and len(pdf) > 20_000
    assert page.evaluate("window.printed") == ["rgb(255, 255, 255)", 680]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"


@pytest.mark.parametrize("runs", [1, 3])
def test_a_phone_has_no_horizontal_scroll(
    runs: int, pages: Callable[..., Path], write_log: Write, open_page: Open
) -> None:
    names = [f"a_run_with_a_very_long_name_without_any_blank_{'x' * 60}_{index}.jsonl" for index in range(runs)]
    page = open_page(pages(*(write_log(name, worse=1.0) for name in names)), **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("#charts canvas").first.bounding_box()["width"] <= 360


def test_nothing_of_a_log_becomes_markup(pages: Callable[..., Path], write_log: Write, open_page: Open) -> None:
    name = "<script>document.title='owned'<!--&quot;<img src=x onerror=alert(1)>.jsonl".replace("/", "")
    path = pages(write_log(name), write_log("other.jsonl"))
    page = open_page(path)
    assert page.title() == "Training report: 2 runs"
    assert page.locator("img").count() == 0
    assert name.removesuffix(".jsonl") in page.locator("#runs").inner_text()
    assert path.read_text(encoding="utf-8").count("<script") == 2  # the data and the page's own


def test_a_value_that_is_not_finite_is_said(pages: Callable[..., Path], tmp_path: Path, open_page: Open) -> None:
    log = tmp_path / "nan.jsonl"
    losses = [*(f"{3.0 - 0.001 * step}" for step in range(200)), *["NaN"] * 3]
    log.write_text("".join(f'{{"step": {step}, "loss": {loss}}}\n' for step, loss in enumerate(losses)))
    page = open_page(pages(log))
    assert "not finite" in page.locator("#findings").inner_text()
    page.locator("summary", has_text="in numbers").click()
    row = page.locator("#numbers tbody tr").first.inner_text().split("\t")
    assert row[-1].strip() == "3" and row[-2].strip() == "203"


def value_ticks(page: Any, panel: str) -> list[str]:
    """Texts of a chart's axis of values, from the lowest on; none of them is cut off at the left."""
    edge = page.evaluate(f"document.querySelector('[data-panel={panel}] .u-over').offsetLeft")
    texts = page.evaluate(f"document.querySelector('[data-panel={panel}] canvas').texts")
    written = [text for text in texts if text["align"] == "right" and text["right"] < edge]
    assert all(text["left"] >= 0 for text in written)
    return [text["text"] for text in written]


@pytest.mark.parametrize(
    ("name", "logged", "log_scale", "shown"),
    [
        ("learning_rate", lambda step: {"lr": 1e-3}, False, ["0.0009", "0.00095", "0.001", "0.00105", "0.0011"]),
        ("learning_rate", lambda step: {"lr": 1e-3 - 5e-8 * step}, False,
         ["9.8e−4", "9.85e−4", "9.9e−4", "9.95e−4", "1e−3"]),
        ("learning_rate", lambda step: {"lr": 4e-4 - 1e-6 * step}, False, ["0", "1e−4", "2e−4", "3e−4", "4e−4"]),
        ("grad_norm", lambda step: {"grad_norm": 123_456 + 3 * step}, False,
         ["123500", "123750", "124000", "124250", "124500"]),
        ("grad_norm", lambda step: {"grad_norm": 10 ** (step / 40 - 6)}, True,
         ["1e−6", "1e−4", "1e−2", "1e0", "1e2", "1e4"]),
        ("training_loss", lambda step: {"loss": 3.6 - 0.003 * step}, True, ["2.5", "2.75", "3", "3.25", "3.5"]),
        ("training_loss", lambda step: {"loss": 9.0 - 0.02 * step}, True, ["1", "2", "5", "10"]),
    ],
)  # fmt: skip
def test_ticks_differ_in_one_notation_and_none_is_cut_off(
    name: str,
    logged: Callable[[int], dict[str, float]],
    log_scale: bool,
    shown: list[str],
    pages: Callable[..., Path],
    tmp_path: Path,
    open_page: Open,
) -> None:
    log = tmp_path / "run.jsonl"
    log.write_text("".join(json.dumps({"step": step, "loss": 2.0} | logged(step)) + "\n" for step in range(400)))
    page = open_page(pages(log))
    page.add_init_script(RECORD_TEXTS)
    page.reload()
    scale = page.locator(f"[data-panel={name}] .panel-head button")
    if (scale.get_attribute("aria-pressed") == "true") != log_scale:
        scale.click()
    assert value_ticks(page, name) == shown


def test_the_name_of_the_threshold_is_whole_where_r_stays_just_below_it(
    pages: Callable[..., Path], write_log: Write, open_page: Open
) -> None:
    path = pages(write_log("good.jsonl"))
    text = path.read_text(encoding="utf-8")
    (values,) = re.findall(r'"r_robust":.*?"values": ?(\[.*?\])', text)
    path.write_text(
        re.sub(r'("threshold": ?)[\d.]+', rf"\g<1>{1.03 * max(json.loads(values))}", text), encoding="utf-8"
    )
    page = open_page(path)
    rows = """([canvas, { offsetLeft, offsetWidth, offsetTop }]) => {
        const { width, data } = canvas.getContext("2d").getImageData(offsetLeft, 0, offsetWidth, offsetTop);
        const painted = [...data.keys()].filter((at) => at % 4 === 3 && data[at]);
        return new Set(painted.map((at) => Math.floor(at / 4 / width))).size;
    }"""
    parts = [page.locator(f"[data-panel=r_robust] {part}").element_handle() for part in ("canvas", ".u-over")]
    assert page.evaluate(rows, parts) >= 5  # above the plot
