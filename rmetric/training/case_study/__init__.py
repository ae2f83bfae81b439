"""A real run is broken on purpose: one healthy prefix, forked for the twin and for each fault."""

from rmetric.training.case_study.forks import LOGGED_DETECTORS, TWIN
from rmetric.training.case_study.plan import DEFAULT_FAULTS, CaseStudyPlan
from rmetric.training.case_study.study import CaseStudy, run_case_study

__all__ = ["DEFAULT_FAULTS", "LOGGED_DETECTORS", "TWIN", "CaseStudy", "CaseStudyPlan", "run_case_study"]
