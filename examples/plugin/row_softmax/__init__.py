"""A kernel of ours, and the suite that gates it."""
