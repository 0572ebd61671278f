"""Benchmarks of other tools, collected as they are.

`recognising` finds them in the source, then each format has its module.
"""
