"""What happens to a program in a worker: the fence, the clocks, warm-up, turns as told, one arm alone, memory, compilation."""
