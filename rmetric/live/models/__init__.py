"""Models to train: tiny ones with random weights, and real ones (:mod:`rmetric.live.models.pretrained`)."""

from rmetric.live.models.tiny import TINY_MODELS, TinyShape, tiny_model

__all__ = ["TINY_MODELS", "TinyShape", "tiny_model"]
