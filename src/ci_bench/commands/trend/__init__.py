"""The commands over time: a history of runs, and the search for the commit of a change."""
