"""Messages between parent and worker about outputs: kept tensors, and compared files."""

from dataclasses import dataclass
from enum import StrEnum


class Keeping(StrEnum):
    """The tensors that are written."""

    NOTHING = "nothing"
    """Digests only: no comparison follows."""
    OUTPUTS = "outputs"
    """The plain run, and the one in fp64: head's half of a comparison."""
    EVERYTHING = "everything"
    """Also the tensors that show the extent of rounding: base's half."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputFiles:
    """The files of both sides, each with the digest that its document names."""

    base: str
    base_digest: str
    head: str
    head_digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimFiles:
    """One comparison that a worker answered, and its files."""

    check: str
    """Name of the check."""
    arm: str
    """Arm whose outputs were compared."""
    expected: str
    """Path of the reference's tensors."""
    expected_digest: str
    """Digest of that file, as the worker reported it."""
    seen: str
    """Path of the arm's tensors."""
    seen_digest: str
    """Digest of that file, as the worker reported it."""
