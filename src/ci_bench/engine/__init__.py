"""How it is measured: processes, clock, sampling, memory, compilation. Knows no suite by name."""
