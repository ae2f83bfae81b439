"""One training loop a file: ``train(steps, seed, **watch)``, where ``watch`` are the options of its monitor."""
