"""The first call of an arm, as the verifying and the timing process each report it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

VALUES = "values of the "
"""Prefix of a digest's subject, before the subject whose values it has."""
TINY = 1e-30
"""A norm below which a tensor counts as zero."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstCall:
    """Inputs and results of the first call of an arm."""

    words: Mapping[str, str] = field(default_factory=dict)
    """Forms and digests by subject, compared as text."""
    sketches: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Projections of all tensors of a kind, in order; their distance is that of the tensors.

    See `suites.shared.worker.first_calls`.
    """
    slack: float = 0.0
    """Allowed error of a sketch, as a share of its size."""

    def differing(self, timed: "FirstCall") -> Iterator[str]:
        """Describe how a timed call differs from this verified one, in the subjects of both."""
        others = {
            subject
            for subject, word in self.words.items()
            if timed.words.get(subject, word) != word
        }
        for subject, word in self.words.items():
            if subject in others and subject.removeprefix(VALUES) not in others - {subject}:
                yield f"{subject} {timed.words[subject]} instead of {word}"
        for kind, expected in self.sketches.items():
            sketch = timed.sketches.get(kind, expected)
            share = (
                math.dist(sketch, expected) / max(math.hypot(*expected), TINY)
                if len(sketch) == len(expected)
                else math.inf
            )
            if not share <= self.slack and kind not in others:
                yield (
                    f"{VALUES}{kind} off by {share:.2g} of their size, and {self.slack:.2g} is"
                    " allowed"
                )
