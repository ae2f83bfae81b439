"""Faults whose mechanism is known, each at several strengths, beside healthy twins, with the mechanism monitors on."""

from studies.mechanism.plan import GROUPS, Group, MechanismPlan, MechanismSpec
from studies.mechanism.run import WATCHED

__all__ = ["GROUPS", "WATCHED", "Group", "MechanismPlan", "MechanismSpec"]
