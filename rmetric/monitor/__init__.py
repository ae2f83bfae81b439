"""Measure a live run, score it, warn, log.

Names are resolved on first use: the hardware watch and the sinks work without torch.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
