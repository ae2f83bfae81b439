"""Models to train: tiny ones with random weights, and real ones (:mod:`rmetric.training.models.pretrained`)."""

from rmetric.training.models.tiny import TINY_MODELS, TinyShape, tiny_model

__all__ = ["TINY_MODELS", "TinyShape", "tiny_model"]
