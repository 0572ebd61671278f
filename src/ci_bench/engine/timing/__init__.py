"""Time a program in a worker: fence, clocks, warm-up, turns, isolated arms, memory, compilation."""
