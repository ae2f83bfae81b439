"""The mechanism study: which monitor fires for which fault, how long before the loss, at what price."""
