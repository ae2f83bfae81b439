"""A campaign of flipped bits: its tables, its sensitivity map, its files."""
