"""The process that runs a benchmark: clocks, sampling, memory, ranks, outputs."""
