"""Outputs of a case's reference arm: digests, comparison with base's, and conclusions.

Owns values only. The tensors themselves are in files next to the results document, named by their
digest; the engine writes and compares them.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

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
    """A factor with three significant digits: ``287``, ``312,000``, ``4.1e+09``."""
    return f"{float(f'{value:.3g}'):,g}" if value < _MOST_DIGITS else f"{value:.1e}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Digests of the weights that a computation starts from: of their names, of names with values, of values in their order.

    Three, since a refactoring may rename weights or register them in another order, and starts from
    the same numbers.
    """

    names: str
    named: str
    ordered: str

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
    """A tensor of head compared with base's: error, and rounding error, both in the tensor's unit.

    `fault` says what else is wrong: another shape, missing, not finite. The figures are then
    unknown.
    """

    name: str
    error: float | None
    allowed: float | None
    fault: str = ""

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
class BesideBase:
    """Result of comparing `tensors` of head with base's, whose digest is `base`.

    `worst` has a few, the worst first.

    `unknown` says why the figures cannot tell a right computation from a wrong one; empty if they
    can. `remark` is for the reader.
    """

    base: str
    tensors: int
    worst: tuple[TensorError, ...] = ()
    unknown: str = ""
    remark: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceOutputs:
    """Outputs of one arm from the suite's seeds, in digests (SHA-256, hexadecimal).

    `digest` is that of all `tensors` in their order, `inputs` that of the inputs, `drawn` that of
    the random generators afterwards, `None` if nothing was drawn. `file` is the digest of the file
    that holds the tensors, `None` if none was kept, and `remark` says why. Only head has `beside`.
    """

    arm: str
    tensors: int
    size_bytes: int
    digest: str
    start: Weights
    inputs: str
    drawn: str | None = None
    file: str | None = None
    remark: str = ""
    beside: BesideBase | None = None

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
        named = " and ".join(what for what, differ in differing.items() if differ)
        return f"{named} differ from base's, so their results cannot be compared" if named else ""


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
    """Comparison of the outputs of head's `arm` with base's.

    It has the number of tensors, and the worst of them.
    """

    arm: str
    verdict: Sameness
    detail: str
    tensors: int
    worst: tuple[TensorError, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptClaim:
    """The files of one comparison that a worker answered, in the case's folder, with their digests.

    Empty: too large to keep.
    """

    check: str
    arm: str
    expected: str = ""
    expected_digest: str = ""
    seen: str = ""
    seen_digest: str = ""
