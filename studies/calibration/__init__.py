"""Calibration of the simulator to real runs: what is measured in which runs, and how."""
