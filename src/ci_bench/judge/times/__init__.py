"""Verdicts on times and other figures: noise, the sequential rule, calibration."""
