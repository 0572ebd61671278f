"""Keeps what both sides' reference arms compute, and holds head's against base's."""
