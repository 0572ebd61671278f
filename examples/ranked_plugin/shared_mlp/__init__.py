"""A training step of ours that several processes share, and the suite that gates it."""
