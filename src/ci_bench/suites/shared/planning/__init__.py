"""For planning: no torch here."""
