"""The robust R-Metric: references that outliers cannot move, evidence of several records, in one unit."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
