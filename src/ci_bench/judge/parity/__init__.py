"""Judges whether a training still learns the same."""
