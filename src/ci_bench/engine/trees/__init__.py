"""The two sides of a run: which commits, their trees, their environments, their set-up."""
