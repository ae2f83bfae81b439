"""What holds in every step of a training loop, until it does not: gradients cleared, new batches, one schedule.

Between two updates nobody but the optimizer has to do with the weights, a backward pass begins with no gradient, a
batch is not the one before, nor one of few, something is left to learn, the schedule goes on as it has gone. To see
that needs no statistics, whatever is trained.
"""

from rmetric.monitor.loop_invariants.invariants import LoopInvariants

__all__ = ["LoopInvariants"]
