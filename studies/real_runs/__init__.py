"""The study on real training: 720 runs of tiny models, each faulty one forked from its healthy twin."""

from studies.real_runs.plan import MATRIX, TRANSFER, Cell, RealSpec, RealStudyPlan
from studies.real_runs.run import TORCH

__all__ = ["MATRIX", "TORCH", "TRANSFER", "Cell", "RealSpec", "RealStudyPlan"]
