"""Training loops as others write them, each in its own words: the monitor's two lines in loops unlike ours."""
