"""Benchmark suites, one folder each.

Planning needs no torch; the worker's half is imported in workers only.
"""
