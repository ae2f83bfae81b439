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
    try:
        return _imported(name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from rmetric.errors import without_live

        raise ModuleNotFoundError(without_live(f"rmetric.{name}", error), name=error.name) from error


def __dir__() -> list[str]:
    return sorted(__all__)
