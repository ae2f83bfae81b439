"""Faults whose mechanism is known, each at several strengths, beside healthy twins, with the mechanism monitors on."""
