"""Faults whose mechanism is known, each at several strengths, beside healthy twins, with the mechanism monitors on."""

from rmetric.training.mechanism_study.plan import GROUPS, Group, MechanismPlan, MechanismSpec
from rmetric.training.mechanism_study.runner import WATCHED

__all__ = ["GROUPS", "WATCHED", "Group", "MechanismPlan", "MechanismSpec"]
