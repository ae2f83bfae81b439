from .detectors import Detector as Detector
from .detectors import StreamingDetector as StreamingDetector
from .detectors import register_detector as register_detector
from .diagnosis import Diagnosis as Diagnosis
from .diagnosis import Finding as Finding
from .diagnosis import diagnose as diagnose
from .faults import Fault as Fault
from .faults import register_fault as register_fault
from .importers import read_run as read_run
from .importers import read_runs as read_runs
from .measurements import Observation as Observation
from .metric import RMetric as RMetric
from .monitor import Alert as Alert
from .monitor import MetricsMonitor as MetricsMonitor
from .monitor import TrainingMonitor as TrainingMonitor
from .monitor.repair import RecomputeStep as RecomputeStep
from .monitor.repair import RestoreState as RestoreState
from .records import Observations as Observations
from .records import Run as Run
from .simulation import TrainingSimulator as TrainingSimulator
from .states import State as State
from .states import states_of as states_of

__version__: str
