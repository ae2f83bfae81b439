"""TODO studies."""
