"""Agents that report their rewards: one training loop a file, as in :mod:`studies.loops.programs`."""
