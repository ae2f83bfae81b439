"""All that needs a GPU, in one command of at most ten minutes: ``make gpu``."""
