"""Loss parity: verdicts on trainings that should learn the same as their reference."""
