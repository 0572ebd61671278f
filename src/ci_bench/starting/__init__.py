"""First steps in a repository: what it has to measure, the files that measure it, and which of them have gone stale.

The repository is read as text. None of its code is imported or run.
"""
