"""The study on real training: 720 runs of tiny models, each faulty one forked from its healthy twin."""

from rmetric.training.real_study.plan import MATRIX, TRANSFER, Cell, RealSpec, RealStudyPlan
from rmetric.training.real_study.runner import TORCH

__all__ = ["MATRIX", "TORCH", "TRANSFER", "Cell", "RealSpec", "RealStudyPlan"]
