"""The study of the paper: 720 simulated runs, tables and figures."""
