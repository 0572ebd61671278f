"""Explains one arm in a process of its own: what its step consists of, under a profiler. Loaded in workers alone."""
