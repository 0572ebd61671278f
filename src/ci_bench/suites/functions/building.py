"""Builds a case: the provider's call, and a way to write other values into its inputs.

Every global generator is seeded before a provider builds and before each inspected call. Imports
torch.

Other values are written into the memory of the given tensors, and nothing is rebuilt: a call that
does not compute from its current inputs is then wrong. `constant` tensors stay as they are.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from types import GeneratorType
from typing import Any

import torch
from torch import Tensor

from ci_bench.suites.functions.declaring import Benchmark, building
from ci_bench.suites.functions.drawing import BadBenchmark, Draw, Drawing, Given
from ci_bench.suites.functions.results import differentiable, named_outputs, plain_tensors
from ci_bench.suites.shared.worker.digests import checksum
from ci_bench.suites.shared.worker.freshness import part_of, prepared_write, set_aside
from ci_bench.suites.shared.worker.randomness import (
    generator_states,
    moved,
    seed_everything,
    step_seed,
)
from ci_bench.suites.shared.worker.roundings import watch_roundings

CALL = 1
"""The place of a call's seed, behind that of building."""
GRADIENT = 1_000_000
"""Number from which tensors are gradients of a call's results."""


SHOWS = 4.0
"""A rounding inside counts where it moves a result by this part of itself at least."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inside:
    """The size of a call's coarsest rounding that results show, and its precision where inputs have a finer one."""

    epsilon: float
    named: str = ""


@dataclass(kw_only=True, slots=True)
class Built:
    """One provider at one point, ready to be called; `left` is the result of the last call."""

    session: Drawing
    call: Callable[[], Any]
    seed: int
    name: str = "the function"
    generator: Generator[Any, None, None] | None = None
    left: Any = None
    gradients: list[Tensor] = field(default_factory=list)
    prepared: list[Tensor] = field(default_factory=list)

    def forward(self) -> None:
        """Call it, after releasing the results of the previous call."""
        self.left = None
        self.left = self.call()

    def backward(self) -> None:
        """Run the backward pass from the call's results to its inputs."""
        outputs = differentiable(self.left)
        if not self.gradients:
            self._draw_gradients(outputs)
        torch.autograd.backward(outputs, self.gradients)

    def drop_gradients(self) -> None:
        """Drop the gradients of the previous step: they must not add up."""
        for tensor in self.session.tensors:
            tensor.grad = None

    def run(self, mode: AbstractContextManager[object] | None = None, draw: int = 0) -> None:
        """Run one whole call from a fixed seed, in a dispatcher mode of torch if given.

        `draw` gives other seeds.
        """
        seed_everything(step_seed(self.seed, CALL + draw))
        with building(self.session), mode or nullcontext():
            self.drop_gradients()
            self.forward()
            if self.session.backward:
                self.backward()

    def drew(self) -> bool:
        """True if the last `run` drew from a global generator."""
        now = generator_states()
        seed_everything(step_seed(self.seed, CALL))
        return bool(moved(generator_states(), now))

    def take(
        self, mode: AbstractContextManager[object] | None = None, draw: int = 0
    ) -> dict[str, Tensor]:
        """Run the call, and copy its results to the host: a device may have no room for many.

        Inputs that it wrote into are among these: the reference has to write the same into them. A
        call that fails in a mode of the dispatcher runs without it.
        """
        given = [checksum(tensor) for tensor in self.session.tensors]
        try:
            self.run(mode, draw)
        except Exception:
            if mode is None:
                raise
            self.run(draw=draw)
        return {**self.copies(), **self._written_since(given)}

    def _written_since(self, given: Sequence[int]) -> dict[str, Tensor]:
        """Copies on the host of the inputs that a call wrote into.

        Their values from before the call show which these are.
        """
        return {
            f"input: {place}": tensor.detach().to("cpu", copy=True)
            for place, (tensor, before) in enumerate(zip(self.session.tensors, given, strict=True))
            if checksum(tensor) != before
        }

    def rewritten(
        self, draw: Draw, mode: AbstractContextManager[object] | None = None
    ) -> dict[str, Tensor]:
        """The same once other values were written."""
        self.write(draw)
        return self.take(mode)

    def inside(self, epsilon: float) -> Inside:
        """The rounding of a call where it computes in a narrower type inside, and results show that; else `epsilon`."""
        seen = watch_roundings(epsilon)
        plain = self.take(seen)
        if not seen.named:
            return Inside(epsilon=epsilon)
        moved = self.take(watch_roundings(epsilon, seed=1))
        share = max((_off(moved.get(name), value) for name, value in plain.items()), default=0.0)
        shows = share >= seen.coarsest / SHOWS
        return Inside(epsilon=seen.coarsest, named=seen.named) if shows else Inside(epsilon=epsilon)

    def comparable(self) -> dict[str, Tensor]:
        """Copies of the last call's results; empty if a part of them cannot be compared."""
        try:
            return self.copies()
        except BadBenchmark:
            return {}

    def copies(self) -> dict[str, Tensor]:
        """Copies on the host of the last call's results."""
        return {name: value.detach().to("cpu", copy=True) for name, value in self.outputs().items()}

    def outputs(self) -> dict[str, Tensor]:
        """The results of the last call, not copied."""
        try:
            found = named_outputs(self.left)
            for place, tensor in enumerate(self.session.tensors):
                if tensor.grad is not None:
                    found |= plain_tensors(tensor.grad, f"gradient: {place}")
        except BadBenchmark as error:
            raise BadBenchmark(f"{self.name} {error}") from error
        return found

    def remember(self) -> None:
        """Keep the values of now, to go back to."""
        self.prepared = set_aside(self._changing())

    def write(self, draw: Draw) -> bool:
        """Write other values into the memory of the inputs.

        Returns true if any input can have others.
        """
        changing = [place for place, given in enumerate(self.session.given) if not given.constant]
        with torch.no_grad():
            for place in changing:
                self.session.tensors[place].data.copy_(
                    draw.tensor(place, self.session.given[place])
                )
            for place, gradient in enumerate(self.gradients):
                gradient.copy_(_gradient(draw, place, gradient, self.session.device))
        return bool(changing)

    def alter(self, draw: Draw, *, all_values: bool) -> Callable[[], None] | None:
        """Prepare a write of a few values of a draw, or of all, into inputs except constants.

        They are written in place. The gradients of results stay as they are.
        """
        coin = torch.Generator().manual_seed(draw.seed)
        pairs = []
        for place, (tensor, given) in enumerate(
            zip(self.session.tensors, self.session.given, strict=True)
        ):
            if given.constant or not tensor.numel():
                continue
            part = (
                tensor.data if all_values else tensor.data[part_of(tensor, coin, independent=True)]
            )
            pairs.append((part, draw.tensor(place, replace(given, shape=tuple(part.shape)))))
        return prepared_write(pairs) if pairs else None

    def restore(self) -> None:
        """Write the values back that were kept."""
        with torch.no_grad():
            for tensor, kept in zip(self._changing(), self.prepared, strict=True):
                tensor.data.copy_(kept)
            for place, gradient in enumerate(self.gradients):
                gradient.copy_(_gradient(self.session.draw, place, gradient, self.session.device))

    def close(self) -> None:
        """Run the code behind the provider's `yield`."""
        if self.generator is None:
            return
        generator, self.generator = self.generator, None
        with building(self.session):
            try:
                next(generator)
            except StopIteration:
                return
        raise BadBenchmark(
            "it yields more than once; code after the first `yield` is teardown and must not yield"
        )

    def _changing(self) -> list[Tensor]:
        drawn = zip(self.session.tensors, self.session.given, strict=True)
        return [tensor for tensor, given in drawn if not given.constant]

    def _draw_gradients(self, outputs: Sequence[Tensor]) -> None:
        if not outputs:
            raise BadBenchmark(
                "backward=True, but nothing it returns has a gradient; return the output, of inputs"
                " that need one"
            )
        for place, output in enumerate(outputs):
            self.gradients.append(_gradient(self.session.draw, place, output, self.session.device))


def build(
    benchmark: Benchmark[..., Any],
    arm: str,
    values: Mapping[str, Any],
    session: Drawing,
    *,
    seed: int,
) -> Built:
    """Call a provider with the parameters of a point.

    `seed` is that of the global generators, whatever values are drawn.

    Raises:
        BadBenchmark: it gives nothing that can be called.
    """
    function = next(one.function for one in benchmark.providers if one.arm.name == arm)
    seed_everything(seed)
    with building(session):
        made: Any = function(**values)
        generator = made if isinstance(made, GeneratorType) else None
        if generator is not None:
            made = next(generator, None)
    session.closed = True
    if not callable(made):
        kind = type(made).__name__
        raise BadBenchmark(
            f"{arm} gives a {kind} instead of the function to time: `return lambda: kernel(x)`"
        )
    named = getattr(benchmark.function, "__name__", arm)
    name = named if named == arm else f"{named} ({arm})"
    return Built(session=session, call=made, seed=seed, name=name, generator=generator)


def _off(moved: Tensor | None, value: Tensor) -> float:
    if moved is None or moved.shape != value.shape or not value.is_floating_point():
        return 0.0
    off = torch.linalg.vector_norm(moved.double() - value.double())
    return float((off / torch.linalg.vector_norm(value.double())).nan_to_num(posinf=0.0))


def _gradient(draw: Draw, place: int, output: Tensor, drawn_on: str) -> Tensor:
    """Gradient of one output, never shaken.

    It has few digits, so it has the same values in every type.
    """
    form = Given(
        shape=tuple(output.shape),
        dtype=torch.bfloat16,
        device=str(output.device),
        drawn_on=drawn_on,
    )
    return Draw(seed=draw.seed).tensor(GRADIENT + place, form).to(output.dtype)
