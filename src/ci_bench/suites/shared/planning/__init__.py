"""Parts of planning that suites share; no torch here."""
