"""Small programs that a gate must refuse, and small programs that it must pass: `python -m benchmarks.trials` runs them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Files = Mapping[str, str]
"""The text of each file, by path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A program as base and head have it. `cheats` says that head deserves a finding.

    `entry` is its line under its suite in ``ci-bench.yml``, `case` a word that the ids of its cases
    hold, and `head` the files that differ in head.
    """

    name: str
    suite: str
    entry: str
    case: str
    base: Files
    head: Files = field(default_factory=dict)
    cheats: bool
