"""Silent data corruption: campaigns of single bit flips, what comes of them, who sees them, and where they were."""
