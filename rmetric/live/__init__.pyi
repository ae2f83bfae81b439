from .run import LanguageModelRun as LanguageModelRun
from .run import LiveRun as LiveRun
from .run import LiveRunConfig as LiveRunConfig
