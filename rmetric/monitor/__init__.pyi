from .alerts import Alert as Alert
from .metrics_monitor import MetricsMonitor as MetricsMonitor
from .monitor import DEFAULT_DETECTORS as DEFAULT_DETECTORS
from .monitor import TrainingMonitor as TrainingMonitor
from .ranks.hang import Hang as Hang
from .ranks.hang_watch import HangWatch as HangWatch
