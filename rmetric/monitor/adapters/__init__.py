"""The monitor in other people's training loops: one thin file a framework, each imported on first use."""

from __future__ import annotations

import lazy_loader

from rmetric.errors import naming_live

_imported, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = naming_live(_imported, __name__)
