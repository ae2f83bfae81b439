from .announcer import Announcer as Announcer
from .base import Sink as Sink
from .base import Sinks as Sinks
from .jsonl import JsonlSink as JsonlSink
from .prometheus import PrometheusEndpoint as PrometheusEndpoint
from .prometheus import PrometheusTextfile as PrometheusTextfile
from .tensorboard import TensorBoardSink as TensorBoardSink
from .wandb import WandbSink as WandbSink
