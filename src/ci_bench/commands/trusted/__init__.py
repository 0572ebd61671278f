"""The commands that talk to GitHub, with their verdicts and texts: the half with the token."""
