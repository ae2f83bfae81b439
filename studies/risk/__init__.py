"""TODO risk."""
