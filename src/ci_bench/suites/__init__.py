"""What is measured: one folder per suite. Planning needs no torch; the worker's half is imported in workers only."""
