from .run import LiveRun as LiveRun
from .run import LiveRunConfig as LiveRunConfig
