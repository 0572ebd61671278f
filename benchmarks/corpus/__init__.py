"""Small programs that a gate must refuse or pass; `python -m benchmarks.trials` runs them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Files = Mapping[str, str]
"""The text of each file, by path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A program as base and head have it."""

    name: str
    """The name in the table, and of its files."""
    suite: str
    """The suite that measures it."""
    entry: str
    """Its line under its suite in ``ci-bench.yml``."""
    case: str
    """A word that the ids of its cases contain."""
    base: Files
    """The texts of base's files, by path."""
    head: Files = field(default_factory=dict)
    """The files that differ in head; empty if none does."""
    cheats: bool
    """True if head deserves a finding."""
