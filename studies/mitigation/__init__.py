"""Mitigations of :mod:`rmetric.monitor.repair`, on the faults that each is meant for and on others."""
