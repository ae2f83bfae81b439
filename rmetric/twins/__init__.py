"""Record live runs beside their fault-free twin: one healthy run, forked at each onset, judged against itself."""
