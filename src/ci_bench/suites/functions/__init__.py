"""The suite `functions`: a benchmark is a function under a decorator, and a case is one combination of its parameters."""
