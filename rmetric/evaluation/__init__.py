"""Evaluation: ground truth, two protocols, scores with intervals, fitted thresholds and weights."""
