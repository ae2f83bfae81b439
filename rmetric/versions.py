"""Validity of kept results: declared versions, and checksums of fitted files.

A study's manifest and the cache of scores carry versions instead of checksums of source code, so that a comment, a
reformatted file or a renamed folder throws nothing away:

=================================  ====================================  ==========================================
version                            stands for                            raised when
=================================  ====================================  ==========================================
``log_writer.SCHEMA_VERSION``      the fields of a log                   a field is added, or means something else
``SIMULATION_VERSION``             :mod:`rmetric.simulation`             the same plan gives other simulated logs
``TRAINING_VERSION``               :mod:`studies.real_runs`              the same plan trains or measures otherwise
``Detector.version``               one detector                          the same records get other scores
``SCORING_VERSION``                :mod:`rmetric.evaluation.scoring`     detectors are shown other records of a log
=================================  ====================================  ==========================================

``tests/data/golden.json`` holds the output of each version; ``tests/test_golden.py`` fails when the output has changed
and the version has not. Fitted numbers change without a change of code, so their files count with their content.

Code that is not part of this package has no such test: a plug-in's detector counts with its version **and** with the
text of the files that its classes stand in, and of what it imports from beside them, for its author may not think of
the version.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path

PACKAGE = __name__.partition(".")[0]


def content_checksum(file: Path) -> str:
    """Checksum of the content of a JSON file: its layout does not count."""
    content = json.dumps(json.loads(file.read_text(encoding="utf-8")), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def content_checksums(files: Iterable[Path]) -> dict[str, str]:
    """Name of each JSON file → :func:`content_checksum`."""
    return {file.name: content_checksum(file) for file in files}


def foreign_code(kind: type) -> str:
    """Checksum of the files in which a class and its bases from outside this package stand; empty if there are none.

    With them count the modules beside them that have been imported, but for the script that runs.
    """
    names = {base.__module__ for base in kind.__mro__}
    foreign = {name for name in names if name.partition(".")[0] not in (PACKAGE, *sys.stdlib_module_names)}
    if not foreign:  # as of all that comes with this package
        return ""
    known = {name: Path(file) for name in [*sys.modules] if (file := getattr(sys.modules[name], "__file__", None))}
    folders = {known[name].parent for name in foreign if name in known}
    files = sorted({file for name, file in known.items() if file.parent in folders and name != "__main__"})
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16] if files else ""
