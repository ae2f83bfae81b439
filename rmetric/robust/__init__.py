"""The robust R-Metric: references that outliers cannot move, drifts that add up, evidence in one unit."""

from rmetric.lazy import names_of

_HOME_OF = {
    "Cusum": "rmetric.robust.cusum",
    "RobustRMetric": "rmetric.robust.metric",
    "RobustRValue": "rmetric.robust.metric",
    "RobustReference": "rmetric.robust.reference",
    "RobustSettings": "rmetric.robust.settings",
    "RobustTrend": "rmetric.robust.trend",
}

__all__ = list(_HOME_OF)

__getattr__ = names_of(__name__, _HOME_OF)
