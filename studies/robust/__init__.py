"""The robust R-Metric: fitted to real runs, and tried on runs unlike them."""
