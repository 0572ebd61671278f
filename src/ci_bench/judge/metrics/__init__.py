"""One metric of base against head: times in turns or of different moments, memory, counters."""
