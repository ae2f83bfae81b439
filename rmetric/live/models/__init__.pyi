from .tiny import TINY_MODELS as TINY_MODELS
from .tiny import TinyShape as TinyShape
from .tiny import tiny_model as tiny_model
