"""The measurement engine: processes, clock, sampling, memory, compilation.

It knows no suite by name.
"""
