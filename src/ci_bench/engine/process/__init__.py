"""Processes: the server that forks, one worker and its two pipes, messages, and ends."""
