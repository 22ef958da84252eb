"""Pages: each one an experiment with its claim, its figures, its graph and its failures."""
