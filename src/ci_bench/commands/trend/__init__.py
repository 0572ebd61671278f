"""The commands that look over time: what is kept of runs, which commit made a metric worse."""
