"""Formulas that several parts use."""
