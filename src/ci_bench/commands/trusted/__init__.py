"""The commands that talk to GitHub, with what they judge and what they tell: the half that holds the token."""
