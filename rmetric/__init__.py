"""Reliability metric for language-model training: simulate, watch, score, explain.

The names below are resolved on first use, so ``import rmetric`` costs milliseconds and never pulls in a plotting
library, scikit-learn or torch.
"""

from __future__ import annotations

import lazy_loader

from rmetric.errors import naming_live

__version__ = "0.1.0"

_imported, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]
__getattr__ = naming_live(_imported, __name__)


def __dir__() -> list[str]:
    return sorted(__all__)
