"""From the paper's F1 to the strict one on real training: the author's conditions given up one after the other."""
