"""A public repository, written small, with the edits of its first hour."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """A step of the first hour, in order."""

    INIT = "`ci-bench init`"
    FIRST = "first pull request"
    UNCHANGED = "no change"
    SLOWER = "slower"
    HARMLESS = "other rounding"
    HARMFUL = "other results"
    NEW = "new benchmark"
    RENAMED = "renamed benchmark"
    DELETED = "deleted benchmark"
    ACCEPTED = "slower, accepted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """A replacement in one file. Without `old`, `new` is appended; the file may be new."""

    file: str
    new: str
    old: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """A repository, and the words that the headline of each step contains."""

    kind: str
    """The kind of repository, as a column of the table."""
    like: str
    """The public repository with the same traits."""
    files: Mapping[str, str]
    """The texts of its files, by path."""
    finish: tuple[Edit, ...]
    """The edits that a user makes after `ci-bench init`."""
    changes: Mapping[Step, tuple[Edit, ...]]
    """The edits of each step that follows, as pull requests."""
    case: str
    """The case that gets slower, as `ci-bench accept` names it."""
    headlines: Mapping[Step, str]
    """The words that the headline of each step contains."""
    blocks: int = 10
    """The number of blocks of a launch."""


CONFIG = "ci-bench.yml"


def replaced(file: str, old: str, new: str) -> tuple[Edit, ...]:
    """Return the one edit that puts `new` instead of `old`."""
    return (Edit(file=file, old=old, new=new),)
