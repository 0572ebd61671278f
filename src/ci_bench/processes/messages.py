"""Messages between parent and worker about outputs: which tensors are kept, and which files are compared."""

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
    """One comparison that a worker answered: `check` of `arm`, and the files, each with the digest that the worker named."""

    check: str
    arm: str
    expected: str
    expected_digest: str
    seen: str
    seen_digest: str
