"""Each rank of a training by itself: its own time before it waits for the others, and whether it goes on."""
