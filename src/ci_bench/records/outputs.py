"""Outputs of a case's reference arm: digests, comparison with base's, and conclusions.

Owns values only. The tensors themselves are in files next to the results document, named by their
digest; the engine writes and compares them.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from ci_bench.records.forms import ArmName, Bounds, NonNegative, Sentence, Sha256, Text

_MOST_DIGITS = 1e6


def describe_deviation(error: float, allowed: float) -> str:
    """Compare a deviation with rounding: ``off by 0.0032, 287 times what rounding explains``.

    Within rounding: ``off by 1e-07, rounding explains 1e-06``. Both are in the tensor's own unit.
    """
    off = f"off by {error:.3g}"
    if error <= allowed:
        return f"{off}, rounding explains {allowed:.3g}"
    times = error / allowed if allowed else math.inf
    return (
        f"{off}, {format_factor(times)} times what rounding explains"
        if math.isfinite(times)
        else f"{off}, beyond rounding"
    )


def format_factor(value: float) -> str:
    """Format a factor with three significant digits: ``287``, ``312,000``, ``4.1e+09``."""
    return f"{float(f'{value:.3g}'):,g}" if value < _MOST_DIGITS else f"{value:.1e}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Digests of the weights that a computation starts from.

    Three, since a refactoring may rename weights or register them in another order, and still start
    from the same numbers.
    """

    names: Sha256
    """Digest of their names."""
    named: Sha256
    """Digest of names with values."""
    ordered: Sha256
    """Digest of the values in their order."""

    def same_as(self, other: "Weights") -> bool:
        """Return whether every weight has the same bytes.

        By name where the names are the same. Else by their order: the names are others, and the
        numbers may be the same.
        """
        return (
            self.named == other.named
            if self.names == other.names
            else self.ordered == other.ordered
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorError:
    """A tensor of head compared with base's.

    Errors are in the tensor's unit, and unknown if there is another fault: another shape, missing,
    not finite.
    """

    name: Sentence
    """The tensor's name."""
    error: NonNegative | None
    """Its deviation; `None` if that is not a finite number."""
    allowed: NonNegative | None
    """The deviation that rounding explains; `None` if that is not a finite number."""
    fault: Sentence = ""
    """Another fault; empty if none was found."""

    @property
    def wrong(self) -> bool:
        """Return whether rounding does not explain it."""
        return (
            bool(self.fault)
            or self.error is None
            or self.allowed is None
            or not self.error <= self.allowed
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputsComparison:
    """Result of comparing head's tensors with base's."""

    base: Sha256
    """Digest of base's tensors."""
    tensors: Annotated[int, Bounds(ge=0, le=1_000_000)]
    """Number of base's tensors."""
    worst: Annotated[tuple[TensorError, ...], Bounds(max_items=20)] = ()
    """The tensors with the largest deviations, worst first."""
    unknown: Text = ""
    """Why the figures are inconclusive; empty if they are not."""
    remark: Text = ""
    """A remark for the reader."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceOutputs:
    """Outputs of one arm from the suite's seeds, as SHA-256 digests."""

    arm: ArmName
    """The arm that computed them."""
    tensors: Annotated[int, Bounds(ge=0, le=1_000_000)]
    """Number of tensors."""
    size_bytes: Annotated[int, Bounds(ge=0, le=1_000_000_000_000_000)]
    """Their total size in bytes."""
    digest: Sha256
    """Digest of all tensors in their order."""
    start: Weights
    """Digests of the initial weights."""
    inputs: Sha256
    """Digest of the inputs."""
    drawn: Sha256 | None = None
    """State of the random generators afterwards; `None` if nothing was drawn."""
    file: Sha256 | None = None
    """Digest of the file that holds the tensors; `None` if none was kept."""
    remark: Text = ""
    """Why no file was kept."""
    beside: OutputsComparison | None = None
    """The comparison of head's outputs with base's; `None` if they were not compared."""

    def apart_from(self, base: "ReferenceOutputs") -> str:
        """Name what this computation starts with unlike base's, which bars a comparison.

        Empty if nothing.
        """
        if self.arm != base.arm:
            return f"base kept what {base.arm} computes, and head what {self.arm} does"
        differing = {
            "the start weights": not self.start.same_as(base.start),
            "the inputs": self.inputs != base.inputs,
        }
        subjects = " and ".join(what for what, differ in differing.items() if differ)
        return (
            f"{subjects} differ from base's, so their results cannot be compared"
            if subjects
            else ""
        )


class Sameness(StrEnum):
    """Agreement of head's outputs with base's."""

    BITWISE = "bitwise"
    WITHIN_ROUNDING = "within_rounding"
    CHANGED = "changed"
    UNKNOWN = "unknown"

    @property
    def holds(self) -> bool:
        """Return whether head computes what base computes."""
        return self in {Sameness.BITWISE, Sameness.WITHIN_ROUNDING}


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputsFinding:
    """Comparison of the outputs of head's arm with base's."""

    arm: ArmName
    """Head's arm."""
    verdict: Sameness
    """The verdict."""
    detail: Annotated[str, Bounds(max_length=30_000)]
    """The observation."""
    tensors: Annotated[int, Bounds(ge=0, le=1_000_000)]
    """Number of tensors."""
    worst: Annotated[tuple[TensorError, ...], Bounds(max_items=20)] = ()
    """The tensors with the largest deviations, worst first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptClaim:
    """The files of one comparison that a worker answered, in the case's folder."""

    check: str
    """Name of the check."""
    arm: str
    """The compared arm."""
    expected: str = ""
    """File of the reference's tensors; empty if too large to keep."""
    expected_digest: str = ""
    """Its SHA-256."""
    seen: str = ""
    """File of the arm's tensors; empty likewise."""
    seen_digest: str = ""
    """Its SHA-256."""
