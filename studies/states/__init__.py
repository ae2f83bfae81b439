"""States of runs: how often healthy runs show as much, and how many real ones are recognised."""
