"""The library's benchmarks, for ci-bench."""
