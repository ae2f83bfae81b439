"""The look that all figures share: sizes, colours that every eye can tell apart, axes with plain numbers."""

from __future__ import annotations

import functools
import io
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from rmetric.files import write_atomically

P = ParamSpec("P")
T = TypeVar("T")

WIDTH_IN = 7.0
"""Width of every figure; texts are at least 8 points at this size."""
DPI = 200

# Okabe and Ito 2008, without the yellow that white paper swallows: told apart with every common colour vision.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE, GREY = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#6E6E6E",
)  # fmt: skip
PALE = "#F2F2F2"
SIGNALS = (("lambda", "λ", GREEN, ":"), ("sigma_sq", "σ²", BLACK, "-"), ("delta_l", "ΔL", PURPLE, "--"))
"""Log name, sign, colour and line of each signal."""
RUN_LOOK: dict[str, Any] = {"color": BLUE, "linewidth": 1.0, "zorder": 3}
"""Curve of the run that a figure is about, above that of its twin."""
MARKS: dict[str, dict[str, Any]] = {
    "onset": {"color": BLACK, "linestyle": (0, (4, 2)), "linewidth": 1.0},
    "fault ends": {"color": GREY, "linestyle": (0, (1, 2)), "linewidth": 1.0},
    "failure": {"color": VERMILION, "linestyle": "-", "linewidth": 1.4},
    "first alert": {"color": BLUE, "linestyle": (0, (1, 1.2)), "linewidth": 1.6},
    "robust alert": {"color": PURPLE, "linestyle": (0, (3, 1, 1, 1)), "linewidth": 1.6},
    "first warning": {"color": GREEN, "linestyle": (0, (6, 1.5, 1, 1.5)), "linewidth": 1.4},
}
"""Vertical lines at steps of a run."""
GROUND: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
"""White below a text, so that no line runs through it."""

SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # has λ, σ, ², Δ and ′, and comes with matplotlib
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.titlelocation": "left",
    "axes.titlepad": 4.0,
    "axes.unicode_minus": True,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.0,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "text.parse_math": False,  # a run's or detector's name may hold a dollar sign
    "pdf.fonttype": 42,  # whole TrueType fonts, as publishers ask
    "svg.hashsalt": "rmetric",
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
}


def drawn_with(settings: Mapping[str, Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator: draw with these settings over matplotlib's own, whatever the user's are; those stay as they were."""

    def decorated(draw: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(draw)
        def wrapped(*args: P.args, **options: P.kwargs) -> T:
            with style.context(["default", dict(settings)]):
                return draw(*args, **options)

        return wrapped

    return decorated


styled = drawn_with(SETTINGS)
"""Decorator: draw in this style."""


def new_figure(height_in: float) -> Figure:
    """A figure that pyplot does not know of, so that nothing is left behind."""
    engine = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03, wspace=0.03, hspace=0.03)
    figure = Figure(figsize=(WIDTH_IN, height_in), layout=engine)
    FigureCanvasAgg(figure)
    return figure


@dataclass(frozen=True)
class Look:
    """Colour, line and marker of one series; no two of a figure share all three."""

    color: str
    line: Any
    marker: str
    width: float = 1.2


def looks(names: Sequence[str], emphasised: str) -> dict[str, Look]:
    """A look a name, the emphasised one first and thickest; colour, line and marker change together.

    >>> kinds = looks(list("abcdefghijklmnopqrst"), "a")
    >>> len({(look.color, str(look.line), look.marker) for look in kinds.values()})
    20
    """
    colors = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, GREY)
    lines: tuple[Any, ...] = ("-", "--", (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2)))
    markers = "sD^vP<X>*hp"
    others = [name for name in names if name != emphasised]
    found = {emphasised: Look(BLACK, "-", "o", 2.0)} if emphasised in names else {}
    for index, name in enumerate(others):
        found[name] = Look(colors[index % 7], lines[index % 5], markers[index % 11])
    return found


def plain(value: float, _position: int | None = None) -> str:
    """A number on an axis.

    >>> plain(12500.0), plain(0.01), plain(-3.0), plain(2e-7)
    ('12,500', '0.01', '−3', '2e−07')
    """
    if value == 0:
        return "0"
    small_or_huge = not 1e-4 <= abs(value) < 1e7
    text = f"{value:.0e}" if small_or_huge else f"{value:,.10g}" if abs(value) < 1e6 else f"{value:,.0f}"
    return text.replace("-", "−")


def short(value: float, _position: int | None = None) -> str:
    """A number on an axis, short whatever its size.

    >>> short(2.5), short(1000.0), short(1e8), short(-2.5e5), short(1e-4)
    ('2.5', '1,000', '10⁸', '−2.5·10⁵', '10⁻⁴')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return plain(round(value, 4))
    mantissa, exponent = f"{abs(value):.1e}".replace(".0e", "e").split("e")
    power = "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return ("−" if value < 0 else "") + (power if mantissa == "1" else f"{mantissa}·{power}")


def log_ticks(low: float, high: float, most: int = 3) -> list[float]:
    """Round numbers within limits, at most so many and evenly spread: powers of ten, or 1, 2 and 5 times them.

    >>> log_ticks(0.9, 20.0), log_ticks(1e-4, 1e9), log_ticks(1.5, 6.0)
    ([1.0, 10.0], [0.0001, 10.0, 1000000.0], [2.0, 5.0])
    """
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    for factors in ((1.0,), (1.0, 2.0, 5.0)):
        found = [tick for power in exponents for factor in factors if low <= (tick := factor * 10.0**power) <= high]
        if len(found) > 1:
            break
    return found[:: math.ceil(len(found) / most)] if found else []


def plain_numbers(ax: Axes, *axes: str, bins: int = 5) -> None:
    """Plain numbers on linear axes (``"x"``, ``"y"``), at most ``bins`` steps."""
    for name in axes:
        axis = getattr(ax, f"{name}axis")
        axis.set_major_locator(MaxNLocator(nbins=bins))
        axis.set_major_formatter(FuncFormatter(plain))


def log_axis(ax: Axes, name: str, ticks: int = 5, **options: Any) -> None:
    """A logarithmic axis with plain numbers at powers of ten."""
    getattr(ax, f"set_{name}scale")("symlog" if options else "log", **options)
    axis = getattr(ax, f"{name}axis")
    if not options:
        axis.set_major_locator(LogLocator(base=10.0, numticks=ticks))
    axis.set_major_formatter(FuncFormatter(plain))
    axis.set_minor_formatter(NullFormatter())


def steps_axis(ax: Axes) -> None:
    """Training steps, whole numbers."""
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    ax.xaxis.set_major_formatter(FuncFormatter(plain))
    ax.set_xlabel("training step")


def letter(ax: Axes, index: int, title: str = "") -> None:
    """Panel letter, and a title where the axes do not say it all."""
    ax.set_title(f"({chr(ord('a') + index)})  {title}".rstrip(), loc="left")


def say(ax: Axes, text: str, height: float = 0.5) -> None:
    """A sentence in a panel that has nothing to show, ``height`` from the bottom (0) to the top (1)."""
    place: dict[str, Any] = {"transform": ax.transAxes, "ha": "center", "va": "center"}
    ax.text(0.5, height, text, **place, color=GREY, style="italic", fontsize=8, bbox=GROUND)


@styled
def notice(text: str, note: str = "") -> Figure:
    """A figure that says why there is nothing to draw."""
    made = new_figure(1.6)
    ax = made.subplots()
    ax.set_axis_off()
    say(ax, broken(text, 90))
    footnote(made, note)
    return made


def footnote(figure: Figure, text: str) -> None:
    """A line below everything else; nothing if there is nothing to say."""
    if text:
        figure.supxlabel(text, x=0.01, ha="left", fontsize=8, style="italic", color=GREY)


def stacked(studies: Iterable[str]) -> str:
    """Arrangement of the panels of several studies, in words."""
    return f"From top to bottom: {', '.join(studies)} study."


def abreast(studies: Iterable[str]) -> str:
    """Arrangement of the panels of several studies, in words."""
    return f"From left to right: {', '.join(studies)} study."


def legible(ax: Axes) -> None:
    """Make each number in the cells of a heat map black or white, whichever contrasts more (WCAG 2: luminance 0.179).

    A cell without a value may have no number.
    """
    (cells,) = [item for item in ax.collections if isinstance(item, QuadMesh)]
    columns = np.shape(cells.get_coordinates())[1] - 1
    colors = np.asarray(cells.get_facecolor(), dtype=np.float64)[:, :3]
    linear = np.where(colors <= 0.03928, colors / 12.92, ((colors + 0.055) / 1.055) ** 2.4)
    luminance = linear @ np.array([0.2126, 0.7152, 0.0722])
    for text in ax.texts:
        x, y = text.get_position()
        text.set_color(BLACK if luminance[int(y) * columns + int(x)] > 0.179 else "white")


def broken(text: str, width: int) -> str:
    """Text in lines of at most ``width`` characters."""
    return "\n".join(textwrap.wrap(text, width))


_NO_CLOCK = {"png": {"Software": None}, "pdf": {"CreationDate": None}}
"""Metadata that would change with the time, or with the version of the drawing library."""


@dataclass(frozen=True)
class Drawing:
    name: str
    """File name without its ending, such as ``figure_3_curves``."""
    title: str
    caption: str
    """Runs, protocol, thresholds, intervals, and what is left out."""
    files: Mapping[str, bytes] = field(repr=False)
    """Ending → content: ``png`` and ``pdf``."""


def lay_out(figure: Figure) -> None:
    """Find the layout once, and not once more each time that the figure is drawn."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


@styled
def rendered(figure: Figure) -> dict[str, bytes]:
    """The figure as PNG and PDF."""
    lay_out(figure)
    files = {}
    for ending, metadata in _NO_CLOCK.items():
        buffer = io.BytesIO()
        figure.savefig(buffer, format=ending, dpi=DPI, metadata=metadata)
        files[ending] = buffer.getvalue()
    return files


def write(drawing: Drawing, folder: Path) -> None:
    """The files of a figure, each written whole or not at all."""
    for ending, content in drawing.files.items():
        write_atomically(folder / f"{drawing.name}.{ending}", content)


def write_figures(drawings: Sequence[Drawing], command: str, folder: Path) -> None:
    """The files of all figures, and ``captions.md``: one caption a figure, and the command that makes them."""
    for drawing in drawings:
        write(drawing, folder)
    parts = ["# Captions\n"]
    parts += [
        f"## {drawing.title}\n\n`{drawing.name}.png`, `{drawing.name}.pdf`\n\n{drawing.caption}\n"
        for drawing in drawings
    ]
    parts.append(f"All made by `{command}`.\n")
    write_atomically(folder / "captions.md", "\n".join(parts).encode())
