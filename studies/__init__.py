"""Studies made with the library: a folder a study, each with its plan, its run and its report."""

from pathlib import Path

DATA = Path("data")
"""Folder of the published data sets, seen from the root of the repository."""
