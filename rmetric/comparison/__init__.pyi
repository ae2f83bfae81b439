from .change_point import ChangePoint as ChangePoint
from .change_point import change_point as change_point
from .change_point import highest_sum as highest_sum
from .compare import SIGNALS as SIGNALS
from .compare import Comparison as Comparison
from .compare import Difference as Difference
from .compare import compare as compare
