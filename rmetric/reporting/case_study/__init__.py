"""The results of a case study: tables, CSV files, a summary and a dashboard."""
