from .accelerate import monitored as monitored
from .huggingface import RMetricCallback as RMetricCallback
from .keras import RMetricKeras as RMetricKeras
from .lightning import RMetricLightning as RMetricLightning
