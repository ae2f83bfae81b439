"""TODO twins."""
