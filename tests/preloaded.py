"""What processes that tests start have imported: all that takes them a second or more, whichever test comes first.

Python's server forks all processes of a worker, from what the first of them needs.
"""

import gc

import scipy.stats  # noqa: F401 - a diagnosis imports it on first use

import rmetric.diagnosis
import rmetric.watch  # noqa: F401
import tests.live.processes  # noqa: F401

gc.freeze()  # else each process looks through all of it
