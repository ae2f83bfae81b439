"""Building blocks of a fault's ``inject``: flipped bits, changed attention and routing, lost workers."""
