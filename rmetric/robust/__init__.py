"""The robust R-Metric: references that outliers cannot move, drifts that add up, evidence in one unit."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
