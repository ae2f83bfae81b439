"""A network that is trained, whoever trains it: its parts, what it computes as attention, copies of its state."""
