"""Models to train: tiny ones with random weights, and real ones (:mod:`rmetric.live.models.pretrained`).

Names are resolved on first use: who asks for sizes or files alone does not import transformers.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
