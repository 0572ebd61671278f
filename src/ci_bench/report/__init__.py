"""Texts for people: values in, text out. No input or output, no judging."""
