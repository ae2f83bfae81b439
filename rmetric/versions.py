"""Validity of kept results: declared versions, and checksums of fitted files.

A study's manifest and the cache of scores carry versions instead of checksums of source code, so that a comment, a
reformatted file or a renamed folder throws nothing away. Which there are, and when each is raised:
``docs/development.md``.

``tests/data/golden.json`` holds the output of each version; ``tests/test_golden.py`` fails when the output has changed
and the version has not. Fitted numbers change without a change of code, so their files count with their content.

Code that is not part of this package has no such test: a plug-in's detector counts with its version **and** with the
text of the files that its classes stand in, and of what they import from below their folder, for its author may not
think of the version. What else it reads nobody knows but its author: without a word on that, nothing of it is kept.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import accumulate, product
from pathlib import Path

PACKAGE = __name__.partition(".")[0]
INSTALLED = ("site-packages", "dist-packages")
"""Folders in which all that is installed lies side by side: a module there, in no package, counts by itself."""


def content_checksum(file: Path) -> str:
    """Checksum of the content of a file: of JSON without its layout, of anything else byte by byte."""
    content = file.read_bytes()
    with suppress(ValueError):  # no JSON, or no text
        content = json.dumps(json.loads(content.decode("utf-8")), sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def content_checksums(files: Iterable[Path]) -> dict[str, str]:
    """Name of each file → :func:`content_checksum`."""
    return {file.name: content_checksum(file) for file in files}


def fitted_checksums(kind: type) -> list[str]:
    """:func:`content_checksum` of each fitted file that a class or one of its bases declares."""
    return [content_checksum(file) for base in kind.__mro__ for file in vars(base).get("fitted_files", ())]


def can_be_kept(kind: type) -> bool:
    """Whether all that results of a class depend on is known: one from outside says what it reads, if only nothing."""
    foreign = foreign_modules(kind)
    return not foreign or any("fitted_files" in vars(base) for base in kind.__mro__ if base.__module__ in foreign)


def foreign_modules(kind: type) -> set[str]:
    """Modules that belong neither to this package nor to Python, and in which a class and its bases stand."""
    tops = {base.__module__: base.__module__.partition(".")[0] for base in kind.__mro__}
    return {name for name, top in tops.items() if top != PACKAGE and top not in sys.stdlib_module_names}


def foreign_code(kind: type) -> str:
    """Checksum of the files of :func:`foreign_modules`, and of all that they import from below their folder.

    That folder is a package's outermost one. Empty if there is no such file.
    """
    files: set[Path] = set()
    for name in foreign_modules(kind):
        if file := getattr(sys.modules.get(name), "__file__", None):
            top = getattr(sys.modules.get(name.partition(".")[0]), "__file__", None) or file
            files |= _with_imports(Path(file), Path(top).parent)
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in sorted(files))).hexdigest()[:16] if files else ""


def _with_imports(file: Path, folder: Path) -> set[Path]:
    """A file, and those below a folder that it imports."""
    found, due = {file}, [file]
    while due and folder.name not in INSTALLED:
        places = {place for place in _imports(due.pop(), folder) if place.is_relative_to(folder) and place.is_file()}
        due += places - found
        found |= places
    return found


def _imports(file: Path, folder: Path) -> Iterator[Path]:
    """Files that may hold the modules a file imports, in its functions too; with the packages around them."""
    try:
        nodes = ast.walk(ast.parse(file.read_bytes()))
    except (SyntaxError, ValueError):  # compiled, or broken
        return
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            module, level = getattr(node, "module", None), getattr(node, "level", 0)
            roots = file.parents[level - 1 : level] if level else (folder, *folder.parents)
            for root, alias in product(roots, node.names):
                names = [*(module or "").split("."), *alias.name.split(".")]
                if PACKAGE not in names[:2]:
                    for place in accumulate(names, Path.joinpath, initial=root):
                        yield from (place / "__init__.py", Path(f"{place}.py"))
