"""TODO robust."""
