"""Training loops as other people write them, each in its own words: the monitor's two lines in loops unlike ours."""
