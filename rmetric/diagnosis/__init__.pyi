from .diagnose import diagnose as diagnose
from .diagnose import diagnose_runs as diagnose_runs
from .examination import Examination as Examination
from .finding import FAILED as FAILED
from .finding import SEVERITIES as SEVERITIES
from .finding import Finding as Finding
from .finding import Severity as Severity
from .result import Diagnosis as Diagnosis
