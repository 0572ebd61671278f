"""For workers."""
