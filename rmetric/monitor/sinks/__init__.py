"""Destinations of a monitored run's events, one file each. The optional ones are imported on first use."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
