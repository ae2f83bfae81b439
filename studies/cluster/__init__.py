"""Cost of interruptions to a large training job, and what warnings and repair save: Training Overhead Ratio, simulated.

:mod:`.job` has the failing components, the checkpoint interval and the job; :mod:`.policies` what a detector sees of
failures, what repair undoes, and first-order formulas; :mod:`.monte_carlo` the simulation, which must agree with them.
"""
