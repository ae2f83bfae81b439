"""From real runs to the simulator's parameters: what is measured in which runs, and how."""
