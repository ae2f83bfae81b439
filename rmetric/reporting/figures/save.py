"""A finished figure: its files, byte for byte the same for the same input, and its caption."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from matplotlib.figure import Figure

from rmetric.records import write_atomically
from rmetric.reporting.figures.style import DPI, styled

_NO_CLOCK = {"png": {"Software": None}, "pdf": {"CreationDate": None}}
"""Metadata that would change with the time, or with the version of the drawing library."""


@dataclass(frozen=True)
class Drawing:
    """One figure."""

    name: str
    """File name without its ending, such as ``figure_3_curves``."""
    title: str
    caption: str
    """What is shown: runs, protocol, thresholds, intervals, and what is left out."""
    files: Mapping[str, bytes] = field(repr=False)
    """Ending → content: ``png`` and ``pdf``."""
    note: str = ""
    """For the screen; empty if there is nothing to say."""


@styled
def rendered(figure: Figure) -> dict[str, bytes]:
    """The figure as PNG and PDF."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout is found: not once more for each format
    files = {}
    for ending, metadata in _NO_CLOCK.items():
        buffer = io.BytesIO()
        figure.savefig(buffer, format=ending, dpi=DPI, metadata=metadata)
        files[ending] = buffer.getvalue()
    return files


def write(drawing: Drawing, folder: Path) -> list[Path]:
    """The files of a figure, each written whole or not at all."""
    paths = []
    for ending, content in drawing.files.items():
        path = folder / f"{drawing.name}.{ending}"
        write_atomically(path, content)
        paths.append(path)
    return paths


def write_captions(drawings: Sequence[Drawing], command: str, folder: Path) -> Path:
    """``captions.md``: one caption a figure."""
    parts = ["# Captions\n"]
    parts += [
        f"## {drawing.title}\n\n`{drawing.name}.png`, `{drawing.name}.pdf`\n\n{drawing.caption}\n"
        for drawing in drawings
    ]
    parts.append(f"All made by `{command}`.\n")
    path = folder / "captions.md"
    write_atomically(path, "\n".join(parts).encode())
    return path
