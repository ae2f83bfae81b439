from .metric import RobustRMetric as RobustRMetric
from .metric import RobustRValue as RobustRValue
from .metric import RobustSettings as RobustSettings
from .reference import Level as Level
from .reference import RobustReference as RobustReference
from .reference import RobustTrend as RobustTrend
