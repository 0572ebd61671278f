"""Parts of workers that suites share."""
