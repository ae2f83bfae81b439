"""Measurements of a step that stay on the device: gradient norms and agreement, update size, attention logits."""

from rmetric.monitor.measures.attention_logits import AttentionLogits
from rmetric.monitor.measures.gradient_agreement import GradientAgreement
from rmetric.monitor.measures.gradient_norms import GradientNorms
from rmetric.monitor.measures.update_size import ENTRIES, UpdateSize

__all__ = ["ENTRIES", "AttentionLogits", "GradientAgreement", "GradientNorms", "UpdateSize"]
