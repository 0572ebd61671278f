"""Measures ci-bench itself: how often its verdicts are right, what they cost, and how far the judge scales."""
