"""TODO paper."""
