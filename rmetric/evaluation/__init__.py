"""Ground truth, protocols, scores, intervals, calibration and cost: from logs to numbers."""
