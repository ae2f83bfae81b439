"""The risk study: fit the risk model to real runs, and judge it on runs that it was not fitted to."""
