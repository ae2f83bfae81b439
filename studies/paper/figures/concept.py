"""Figure 1: from a training run to an alert, and from an alert to a verdict on it.

The diagram is described as plain data (:func:`concept`) and drawn at the places that it names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from rmetric.architectures import ARCHITECTURES
from rmetric.episodes import REARM_STEPS
from rmetric.evaluation.ground_truth import TOLERANCE
from rmetric.metric import RMetric
from rmetric.reporting.style import BLACK, BLUE, GREEN, GREY, PALE, VERMILION, WIDTH_IN, Drawing, rendered, styled

HEIGHT_IN = 5.4
NAME, TITLE = "figure_1_concept", "Figure 1: Concept"
PADDING_IN = 0.08


@dataclass(frozen=True)
class Node:
    key: str
    text: str
    x: float
    """Centre, inches from the left."""
    y: float
    """Centre, inches from the bottom."""
    group: str = ""
    width: float = 0.0
    """At least so wide, inches."""
    color: str = BLACK


@dataclass(frozen=True)
class Edge:
    tail: str
    head: str
    text: str = ""
    leaves: float | None = None
    """Place where it leaves its tail, inches from the left; the tail's centre if left out."""
    arrives: float | None = None
    """Place where it arrives; straight below ``leaves`` if that is given, the head's centre otherwise."""


@dataclass(frozen=True)
class Group:
    """Boxes that belong together, on a pale ground."""

    heading: str
    heading_below: bool = False


@dataclass(frozen=True)
class Diagram:
    nodes: Sequence[Node]
    edges: Sequence[Edge]
    groups: dict[str, Group]


def concept() -> Diagram:
    """The diagram; every number in it is read from the code that uses it."""
    metric = RMetric.paper()
    workers = " or ".join(map(str, sorted({profile.workers for _, profile in ARCHITECTURES.items()})))
    weights = metric.weights
    left, middle, right, truth = 0.82, 2.2, 3.58, 5.72
    wide = 4.04
    return Diagram(
        nodes=[
            Node("run", "Training run; a fault begins at a random step (the onset)", middle, 5.1, width=wide),
            Node("lambda", "λ: hardware\nevents per hour", left, 4.3, "metric", 1.22),
            Node("sigma", f"σ²: gradient variance\nover {workers} workers", middle, 4.3, "metric", 1.22),
            Node("delta", "ΔL: drift of the\nvalidation loss", right, 4.3, "metric", 1.22),
            Node("norm", f"min–max of each signal over its own last {metric.window:,} records:\n"
                         "λ′, σ²′ and ΔL′ between 0 and 1", middle, 3.52, "metric", wide),
            Node("r", f"R, between 0 and {sum(weights):g}", middle, 2.74, "metric", wide),
            Node("alert", f"Alert: R > {metric.threshold:g}", middle, 2.16, "metric", color=BLUE),
            Node("twin", "Fault-free twin: same seed,\ndata order and noise", truth, 4.84, "truth", 2.1),
            Node("judge", "Losses on one fixed\nheld-out batch compared", truth, 3.9, "truth", 2.1),
            Node("failure", "Failure step: first step with a\nloss that is not finite, a worker\n"
                            f"lost for good, or an excess over\nthe twin of more than {100 * TOLERANCE:g} % that\n"
                            "lasts to the end", truth, 2.66, "truth", 2.1, color=VERMILION),
            Node("score", "Each alert against the onset and the failure", 3.3, 1.4, "scores", 2.9),
            Node("paper", "Paper protocol: an alert anywhere in\na failed run counts as a warning;\n"
                          "lead = failure − first alert", 1.85, 0.48, "scores", 2.9),
            Node("strict", "Strict protocol: only an alert episode that\nbegins from onset to failure warns; one in\n"
                           f"healthy steps is a false alarm ({REARM_STEPS} quiet\nsteps end an episode)",
                 5.2, 0.48, "scores", 2.9, color=GREEN),
        ],
        edges=[
            Edge("run", "lambda", leaves=left),
            Edge("run", "sigma", leaves=middle),
            Edge("run", "delta", leaves=right),
            Edge("lambda", "norm", leaves=left),
            Edge("sigma", "norm", leaves=middle),
            Edge("delta", "norm", leaves=right),
            Edge("norm", "r", f"{weights.lambda_:.2f} λ′", leaves=left),
            Edge("norm", "r", f"{weights.sigma_sq:.2f} σ²′", leaves=middle),
            Edge("norm", "r", f"{weights.delta_l:.2f} ΔL′", leaves=right),
            Edge("r", "alert"),
            Edge("run", "judge", leaves=4.1, arrives=4.95),
            Edge("twin", "judge"),
            Edge("judge", "failure"),
            Edge("alert", "score", leaves=middle),
            Edge("failure", "score", arrives=4.3),
            Edge("score", "paper", arrives=2.4, leaves=2.6),
            Edge("score", "strict", arrives=4.5, leaves=4.2),
        ],
        groups={
            "metric": Group("R-Metric as published", heading_below=True),
            "truth": Group("Ground truth, kept from all detectors"),
            "scores": Group("Scores, always side by side"),
        },
    )  # fmt: skip


def draw() -> Drawing:
    """Draw the figure; it needs no logs."""
    caption = (
        "From a training run to an alert, and from an alert to a verdict on it. Weights, window and threshold are the "
        "published ones. The ground truth compares each run with a fault-free twin; no detector sees it. Both "
        "protocols judge the same alerts. Drawn from a description in the code, no data."
    )
    return Drawing(NAME, TITLE, caption, rendered(figure(concept())))


@styled
def figure(diagram: Diagram) -> Figure:
    """The diagram; one data unit is one inch."""
    made = Figure(figsize=(WIDTH_IN, HEIGHT_IN))
    ax = made.add_axes((0, 0, 1, 1))
    ax.set_xlim(0, WIDTH_IN)
    ax.set_ylim(0, HEIGHT_IN)
    ax.set_axis_off()
    boxes = {node.key: _draw_node(ax, node) for node in diagram.nodes}
    for key, group in diagram.groups.items():
        _draw_group(ax, group, [boxes[node.key] for node in diagram.nodes if node.group == key])
    for edge in diagram.edges:
        _draw_edge(ax, edge, boxes[edge.tail], boxes[edge.head])
    return made


def _draw_node(ax: Axes, node: Node) -> Bbox:
    text = ax.text(node.x, node.y, node.text, ha="center", va="center", fontsize=8, zorder=4, gid=f"node {node.key}")
    width, height = _size_in(ax, text)
    width = max(node.width, width + 2 * PADDING_IN)
    height += 2 * PADDING_IN
    box = Bbox.from_extents(node.x - width / 2, node.y - height / 2, node.x + width / 2, node.y + height / 2)
    _rectangle(
        ax, box, edgecolor=node.color, facecolor="white", linewidth=1.0 if node.color == BLACK else 1.8, zorder=3
    )
    return box


def _size_in(ax: Axes, text: Text) -> tuple[float, float]:
    figure = ax.get_figure(root=True)
    assert figure is not None
    extent = text.get_window_extent()
    return extent.width / figure.dpi, extent.height / figure.dpi


def _rectangle(ax: Axes, box: Bbox, **look: object) -> None:
    style = "round,pad=0,rounding_size=0.06"
    ax.add_patch(
        FancyBboxPatch((box.x0, box.y0), box.width, box.height, boxstyle=style, **look)  # type: ignore[arg-type]
    )


def _draw_group(ax: Axes, group: Group, boxes: Sequence[Bbox]) -> None:
    text = ax.text(0, 0, group.heading, ha="left", va="bottom", fontsize=8, color=GREY, style="italic", zorder=4)
    _, height = _size_in(ax, text)
    above, below = (0.0, height) if group.heading_below else (height, 0.0)
    around = Bbox.union(boxes).padded(PADDING_IN)
    frame = Bbox.from_extents(around.x0, around.y0 - 0.5 * below, around.x1, around.y1 + above)
    bottom = frame.y0 + 0.5 * PADDING_IN if group.heading_below else frame.y1 - height - 0.5 * PADDING_IN
    text.set_position((frame.x0 + PADDING_IN, bottom))
    _rectangle(ax, frame, edgecolor="none", facecolor=PALE, zorder=1)


def _draw_edge(ax: Axes, edge: Edge, tail: Bbox, head: Bbox) -> None:
    start_x = (tail.x0 + tail.x1) / 2 if edge.leaves is None else edge.leaves
    end_x = edge.arrives
    if end_x is None:
        end_x = (head.x0 + head.x1) / 2 if edge.leaves is None else edge.leaves
    start, end = (start_x, tail.y0), (end_x, head.y1)
    ax.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=8, shrinkA=0, shrinkB=0, linewidth=1.0, color=BLACK, zorder=2,
        )
    )  # fmt: skip
    if edge.text:
        ax.text(start[0] + 0.06, (start[1] + end[1]) / 2, edge.text, ha="left", va="center", fontsize=8, zorder=4)
