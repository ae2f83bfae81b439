"""What a fault's ``inject`` needs: flipped bits, changed attention and routing, lost workers."""
