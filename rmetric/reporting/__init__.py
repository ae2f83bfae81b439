"""Tables and figures: from numbers to paper."""
