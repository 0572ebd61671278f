"""Measures ci-bench itself: how often verdicts are right, their cost, and the judge's scale."""
