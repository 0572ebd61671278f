"""Parts that several suites use."""
