"""Reliability metric for language-model training: simulate, watch, score, explain.

The names below are resolved on first use, so ``import rmetric`` costs milliseconds and never pulls in a plotting
library, scikit-learn or torch.
"""

from __future__ import annotations

import lazy_loader

__version__ = "0.1.0"

_imported, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]


def __getattr__(name: str) -> object:
    from rmetric.errors import naming_live  # logging takes five times as long to import as all else here

    return naming_live(_imported, __name__)(name)


def __dir__() -> list[str]:
    return sorted(__all__)
