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
    """Values for a case: those of a `seed`.

    They are off by `epsilon` if `noise` is a seed for that, and in fp64 if `wide`. Constant tensors
    have the values of the seed `fixed`, if given. With `half`, from 1, the rows of `HALVES` of all
    others are zero.
    """

    seed: int
    fixed: int | None = None
    noise: int = 0
    epsilon: float = 0.0
    wide: bool = False
    half: int = 0

    def tensor(self, place: int, given: "Given") -> Tensor:
        """The values of one tensor, on its device."""
        drawn = self._drawn(place, given)
        if self.half and not given.constant and given.shape:
            drawn[HALVES[self.half - 1](given.shape[0])] = 0
        return drawn

    def _drawn(self, place: int, given: "Given") -> Tensor:
        seed = self.fixed if given.constant and self.fixed is not None else self.seed
        generator = torch.Generator(given.drawn_on).manual_seed(step_seed(seed, place))
        if given.dtype.is_floating_point or given.dtype.is_complex:
            drawn = torch.randn(
                given.shape, generator=generator, dtype=given.drawn_in, device=given.drawn_on
            )
            drawn = drawn.to(given.dtype)
            if self.noise:
                noise = torch.Generator(given.drawn_on).manual_seed(step_seed(self.noise, place))
                drawn = shaken({"": drawn}, self.epsilon, noise)[""]
            wide = _WIDE.get(given.dtype, torch.float64)
            return drawn.to(given.device, wide if self.wide else given.dtype)
        high = 2 if given.dtype is torch.bool else given.high
        drawn = torch.randint(high, given.shape, generator=generator, device=given.drawn_on)
        return drawn.to(given.device, given.dtype)


@dataclass(frozen=True, kw_only=True, slots=True)
class Given:
    """Tensor that a provider requested, or the form of a gradient of its result.

    `drawn_on` is the case's device, which may differ from the tensor's.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str
    drawn_on: str
    requires_grad: bool = False
    constant: bool = False
    high: int = 0

    @property
    def drawn_in(self) -> torch.dtype:
        """The type that is drawn, before it is rounded."""
        if self.dtype.is_complex:
            return torch.complex64
        return torch.float64 if self.dtype is torch.float64 else torch.float32


def dtype_of(named: Any) -> torch.dtype:
    """Torch's type behind ``bf16``, ``bfloat16`` or itself. Raises `ValueError`."""
    found = (
        named
        if isinstance(named, torch.dtype)
        else DTYPES.get(str(named)) or getattr(torch, str(named), None)
    )
    if isinstance(found, torch.dtype):
        return found
    raise ValueError(f"dtype {named!r} is neither one of {', '.join(DTYPES)} nor a type of torch")


@dataclass(kw_only=True, slots=True)
class Drawing:
    """A `Session`: draws one provider's inputs, and keeps its recorded numbers."""

    draw: Draw
    device: str
    backward: bool = False
    given: list[Given] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    records: dict[str, Recorded] = field(default_factory=dict)
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
        asked = Given(
            shape=(shape,) if isinstance(shape, int) else tuple(shape),
            dtype=kind,
            device=str(torch.empty(0, device=device or self.device).device),
            drawn_on=self.device,
            requires_grad=real
            and (self.backward and not constant if requires_grad is None else requires_grad),
            constant=constant,
            high=high or 0,
        )
        return tuple(self._next(asked) for _ in range(number))

    def record(self, name: str, value: float, *, unit: str, better: str | None, gate: bool) -> None:
        """Keep a number; see `declaring.record`."""
        self.records[name] = recorded(name, value, unit=unit, better=better, gate=gate)

    def _next(self, asked: Given) -> Tensor:
        drawn = self.draw.tensor(len(self.given), asked).requires_grad_(asked.requires_grad)
        self.given.append(asked)
        self.tensors.append(drawn)
        return drawn


def by_hand() -> Drawing:
    """A session for a benchmark that is called outside of a run."""
    return Drawing(draw=Draw(seed=0), device="cuda" if torch.cuda.is_available() else "cpu")
