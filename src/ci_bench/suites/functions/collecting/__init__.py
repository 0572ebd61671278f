"""Benchmarks of other tools, collected as they are: recognised in the source (`recognising`), then each format by its module."""
