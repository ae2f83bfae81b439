"""Studies made with the library: a folder a study, each with its plan, its run and its report."""
