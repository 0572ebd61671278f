"""Examines a machine before it measures."""
