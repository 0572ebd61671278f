"""Inputs of a case: tensors drawn from a seed, and the session that gives them out. Imports torch.

The values of a tensor depend on the case's seed and on the number of tensors drawn before it, so
all providers and both sides draw the same. They are drawn on the case's device, since a GPU draws a
gigabyte in milliseconds and a core of the host in seconds: in fp32 (fp64 if requested, whole
numbers in int64), rounded to their type, and moved to their device. Another model of GPU draws
other values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ci_bench.suites.contract import NotMeasured
from ci_bench.suites.functions.recording import Recorded, recorded
from ci_bench.suites.shared.worker.freshness import HALVES
from ci_bench.suites.shared.worker.numerics import shaken
from ci_bench.suites.shared.worker.randomness import step_seed

DTYPES = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
_WIDE = {torch.complex64: torch.complex128}


class BadBenchmark(NotMeasured):
    """A benchmark cannot be measured as it is written. The message explains what to change."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Draw:
    """Values for a case, by the seed that they are drawn from."""

    seed: int
    """Seed of the values."""
    fixed: int | None = None
    """Seed of constant tensors; `None` draws them from `seed` as well."""
    noise: int = 0
    """Seed of the rounding that shakes the values; 0 leaves them exact."""
    epsilon: float = 0.0
    """Size of that rounding, relative."""
    wide: bool = False
    """True gives the values in fp64, or complex128."""
    half: int = 0
    """Number of the half, from 1, whose rows (`HALVES`) are zero but in constants; 0 for none."""

    def tensor(self, place: int, request: "Given") -> Tensor:
        """Draw the values of one tensor, on its device."""
        drawn = self._drawn(place, request)
        if self.half and not request.constant and request.shape:
            drawn[HALVES[self.half - 1](request.shape[0])] = 0
        return drawn

    def _drawn(self, place: int, request: "Given") -> Tensor:
        seed = self.fixed if request.constant and self.fixed is not None else self.seed
        generator = torch.Generator(request.drawn_on).manual_seed(step_seed(seed, place))
        if request.dtype.is_floating_point or request.dtype.is_complex:
            drawn = torch.randn(
                request.shape, generator=generator, dtype=request.drawn_in, device=request.drawn_on
            )
            drawn = drawn.to(request.dtype)
            if self.noise:
                noise = torch.Generator(request.drawn_on).manual_seed(step_seed(self.noise, place))
                drawn = shaken({"": drawn}, self.epsilon, noise)[""]
            wide = _WIDE.get(request.dtype, torch.float64)
            return drawn.to(request.device, wide if self.wide else request.dtype)
        high = 2 if request.dtype is torch.bool else request.high
        drawn = torch.randint(high, request.shape, generator=generator, device=request.drawn_on)
        return drawn.to(request.device, request.dtype)


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """Tensor that a provider requested, or the form of a gradient of its result."""

    shape: tuple[int, ...]
    """Shape of the tensor."""
    dtype: torch.dtype
    """Type that the values are rounded to."""
    device: str
    """Device of the tensor."""
    drawn_on: str
    """Device of the case, which may differ from the tensor's."""
    requires_grad: bool = False
    """True if the backward pass computes its gradient."""
    constant: bool = False
    """True keeps the values in every call."""
    high: int = 0
    """Upper bound, exclusive, of whole numbers; 0 for other types."""

    @property
    def drawn_in(self) -> torch.dtype:
        """The type that is drawn, before it is rounded."""
        if self.dtype.is_complex:
            return torch.complex64
        return torch.float64 if self.dtype is torch.float64 else torch.float32


def dtype_of(dtype: Any) -> torch.dtype:
    """Return torch's type behind ``bf16``, ``bfloat16`` or itself.

    Raises `ValueError`.
    """
    resolved = (
        dtype
        if isinstance(dtype, torch.dtype)
        else DTYPES.get(str(dtype)) or getattr(torch, str(dtype), None)
    )
    if isinstance(resolved, torch.dtype):
        return resolved
    raise ValueError(f"dtype {dtype!r} is neither one of {', '.join(DTYPES)} nor a type of torch")


@dataclass(kw_only=True, slots=True)
class Drawing:
    """A `DeclaringSession`: draws one provider's inputs, and keeps its recorded numbers."""

    draw: Draw
    """Values that the inputs get."""
    device: str
    """Device of the run."""
    backward: bool = False
    """True if the benchmark has a backward pass."""
    given: list[Given] = field(default_factory=list)
    """Requested tensors, in their order."""
    tensors: list[Tensor] = field(default_factory=list)
    """Drawn inputs, in the same order."""
    records: dict[str, Recorded] = field(default_factory=dict)
    """Recorded numbers, by name; the last one counts."""
    closed: bool = False
    """True once the provider has built.

    A draw inside a call would be timed, and could get no other values.
    """

    def inputs(
        self,
        number: int,
        shape: Sequence[int],
        dtype: Any,
        *,
        device: str | None,
        requires_grad: bool | None,
        constant: bool,
        high: int | None,
    ) -> tuple[Tensor, ...]:
        """Draw tensors; see `declaring.inputs`."""
        if self.closed:
            raise BadBenchmark(
                "ci_bench.inputs is called in the timed function; draw inputs before, where that"
                " function is built"
            )
        kind = dtype_of(dtype)
        real = kind.is_floating_point or kind.is_complex
        if not real and kind is not torch.bool and not high:
            raise ValueError(f"inputs of {dtype}: whole numbers need `high`, which they stay below")
        request = Given(
            shape=(shape,) if isinstance(shape, int) else tuple(shape),
            dtype=kind,
            device=str(torch.empty(0, device=device or self.device).device),
            drawn_on=self.device,
            requires_grad=real
            and (self.backward and not constant if requires_grad is None else requires_grad),
            constant=constant,
            high=high or 0,
        )
        return tuple(self._next(request) for _ in range(number))

    def record(self, name: str, value: float, *, unit: str, better: str | None, gate: bool) -> None:
        """Keep a number; see `declaring.record`."""
        self.records[name] = recorded(name, value, unit=unit, better=better, gate=gate)

    def _next(self, request: Given) -> Tensor:
        drawn = self.draw.tensor(len(self.given), request).requires_grad_(request.requires_grad)
        self.given.append(request)
        self.tensors.append(drawn)
        return drawn


def by_hand() -> Drawing:
    """Return a session for a benchmark that is called outside of a run."""
    return Drawing(draw=Draw(seed=0), device="cuda" if torch.cuda.is_available() else "cpu")
