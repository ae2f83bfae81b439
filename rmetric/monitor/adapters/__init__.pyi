from .accelerate import monitored as monitored
from .huggingface import RMetricCallback as RMetricCallback
from .lightning import RMetricLightning as RMetricLightning
