"""A real run is broken on purpose: one healthy prefix, forked for the twin and for each fault."""

from studies.case_study.plan import DEFAULT_FAULTS, CaseStudyPlan
from studies.case_study.run import LOGGED_DETECTORS, TWIN, CaseStudy, run_case_study

__all__ = ["DEFAULT_FAULTS", "LOGGED_DETECTORS", "TWIN", "CaseStudy", "CaseStudyPlan", "run_case_study"]
