"""Hooks of the site: pages lie where the repository has them, so that links work in both; docstrings become Markdown.

make site
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PATTERNS = (
    "*.md", "CITATION.cff", "LICENSE", "docs/*.md", "docs/findings/*.md", "docs/*.png", "docs/dashboards/*",
    "data/README.md", "data/licences/*", "logs_FULL_METRIC/README.md",
)  # fmt: skip
MARKUP = (
    (re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([^`]+)`"), r"`\1`"),
    (re.compile(r"^\.\. math:: *(.+)$", re.M), r"`\1`"),
    (re.compile(r"(?<=\n\n)(>>> .*(?:\n.+)*)"), r"```pycon\n\1\n```"),
)
"""Sphinx's markup → Markdown."""
EXAMPLES = "Examples\n--------\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Files of the repository by their places in it, beside those of the theme."""
    mine = [path.relative_to(ROOT).as_posix() for pattern in PATTERNS for path in sorted(ROOT.glob(pattern))]
    themes = [file for file in files if file.abs_src_path and not Path(file.abs_src_path).is_relative_to(ROOT / "docs")]
    return Files([*themes, *(File(name, str(ROOT), config.site_dir, config.use_directory_urls) for name in mine)])


class Markdown(griffe.Extension):
    """Docstrings as Markdown; a section of examples is understood as it is."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring:
            text, section, examples = obj.docstring.value.partition(EXAMPLES)
            for pattern, replacement in MARKUP:
                text = pattern.sub(replacement, text)
            obj.docstring.value = text + section + examples
