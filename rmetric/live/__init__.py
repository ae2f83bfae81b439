"""Real training with torch: watch it, break it on purpose, explain it.

Names are resolved on first use: a part of this package that needs a library does not make the others need it.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
