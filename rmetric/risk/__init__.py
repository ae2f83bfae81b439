"""Meaning of an alert: P(failure within k steps), P(the run heals by itself), and the family of faults it looks like.

The shipped model is plain numbers in ``model.json`` and needs NumPy alone; ``python -m studies.risk.fit`` fitted it.
"""

from rmetric.risk.model import FAMILIES, Assessment, Assessments, RiskModel

__all__ = ["FAMILIES", "Assessment", "Assessments", "RiskModel"]
