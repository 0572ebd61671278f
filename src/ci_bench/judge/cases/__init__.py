"""What stands against what: cases, arms and lines of two documents, and what of them is missing."""
