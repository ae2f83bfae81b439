"""Studies made with the library: a folder a study, each with its plan, its run and its report."""

from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data"
"""Folder of the published data sets, wherever a study is started from."""
