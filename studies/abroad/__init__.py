"""Training of others: strangers' logs with labels, and the benchmark that scores any detector on all sources."""
