"""First steps in a repository: its benchmarks, the files that measure them, and stale files.

The repository is read as text. None of its code is imported or run.
"""
