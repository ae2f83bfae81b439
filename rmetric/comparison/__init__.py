"""Comparison of two runs: the first step at which they differ by more than noise explains, signal by signal."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
