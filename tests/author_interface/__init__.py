"""Scripts with the interface of the author's, written anew: they know the author's log format, not this project."""
