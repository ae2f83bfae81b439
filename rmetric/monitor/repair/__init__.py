"""Repair without stopping: what is done about a step that looks wrong. One policy a file."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
