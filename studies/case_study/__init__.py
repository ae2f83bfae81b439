"""A real run is broken on purpose: one healthy prefix, forked for the twin and for each fault."""
