"""Processes: the server that forks, one worker and its two pipes, what they tell each other, how they end."""
