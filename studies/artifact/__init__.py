"""What a reviewer of the artefact can check: each claim with its command, in ``claims.toml``."""
