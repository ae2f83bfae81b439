"""How well the worker that is slow is named: real processes, one of which is slowed on purpose."""
