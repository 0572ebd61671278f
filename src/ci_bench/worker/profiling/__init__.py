"""Explain one arm in a separate process: what its step consists of, under a profiler.

Only workers load this package.
"""
