"""What findings are worth: right and wrong ones by kind, problems found and missed, beside tools of others."""
