"""The worker's half of `functions`: one point of one benchmark as a workload.

Imports torch; never imported by the parent.

Seed, number format and determinism: a case's seed follows from its id: it is the same for all arms
and both sides (`building`). Precision and torch's other switches are as the user's code sets them.
Warm-up is the engine's.
"""

import hashlib
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from ci_bench.errors import BadConfig
from ci_bench.records.results import Case, Check
from ci_bench.suites.contract import Compiler, Context, Evidence, Mark, Part
from ci_bench.suites.functions.building import Built
from ci_bench.suites.functions.collecting.collected import Collected
from ci_bench.suites.functions.declaring import Benchmark
from ci_bench.suites.functions.drawing import BadBenchmark, Draw
from ci_bench.suites.functions.grids import points
from ci_bench.suites.functions.importing import benchmarks
from ci_bench.suites.functions.plan import BACKWARD, FORWARD
from ci_bench.suites.functions.verify import Bench, epsilon_of, verify_arms, verify_followed
from ci_bench.suites.shared.worker.numerics import JOLTED, jolt_of
from ci_bench.suites.shared.worker.roundings import watch_roundings


def open_workload(case: Case, context: Context) -> "FunctionWorkload":
    """The workload of one case. Raises `BadBenchmark` if this side's files have no such case."""
    found = find(case)
    return FunctionWorkload(case, context, *found)


def find(case: Case) -> tuple[Benchmark[..., Any], Mapping[str, Any]]:
    """The benchmark and the parameters of a case, from this side's code.

    JSON has lost tuples and objects.

    Raises:
        BadBenchmark: this side's code has another benchmark, or none.
    """
    file, function, label = (case.params[name] for name in ("file", "function", "point"))
    try:
        found = [one for one in benchmarks(file) if one.declaration(file).function == function]
        if not found:
            raise BadBenchmark(f"{file} has no benchmark {function} on this side")
        declared = found[-1].declaration(file)
        values = next((point.values for point in points(declared) if point.label == label), None)
    except BadConfig as error:
        raise BadBenchmark(str(error)) from error
    if values is None:
        raise BadBenchmark(
            str(declared.fault("cases", f"[{label}] is not one of them on this side"))
        )
    if {*declared.ordered_arms} != {*case.arms}:
        raise BadBenchmark(
            f"{file}: {function} has the providers {', '.join(declared.ordered_arms)} on this side"
        )
    return found[-1], values


class FunctionWorkload:
    """One point of one benchmark."""

    keeps_freed_memory = True

    def __init__(
        self,
        case: Case,
        context: Context,
        benchmark: Benchmark[..., Any],
        values: Mapping[str, Any],
    ) -> None:
        """Nothing is built yet."""
        self._case, self._context = case, context
        seed = int.from_bytes(hashlib.sha256(case.id.encode()).digest()[:4], "big")
        self._bench = Bench(
            benchmark=benchmark,
            values=values,
            device=context.device,
            seed=seed,
            backward=bool(case.params.get("backward", False)),
        )

    def prepare(self) -> None:
        """Nothing to fetch."""

    def open(self, arm: str) -> "TimedCall":
        """A provider, built and ready."""
        return TimedCall(arm, self._bench, alone=len(self._case.arms) == 1)

    def verify(self, arms: tuple[str, ...]) -> Evidence:
        """Compare every arm with the reference in fp64; the reference's results are kept."""
        own = self._context
        return verify_arms(
            self._bench, arms, launch=own.launch, keep=own.keep, tell=own.progress, claim=own.claim
        )


class TimedCall:
    """One arm for the clock: one call, and its backward pass if requested."""

    items: int | None = None
    compiler = Compiler.NONE
    learns = False
    memory = 0.0
    batches = 1

    def __init__(self, arm: str, bench: Bench, *, alone: bool) -> None:
        """Build the program once. `alone` means that no other arm can show the right values."""
        self._arm, self._bench, self._alone = arm, bench, alone
        self._built: Built = bench.build(arm, Draw(seed=bench.seed))
        self.parts: tuple[Part, ...] = (
            (Part(metric=FORWARD), Part(metric=BACKWARD)) if bench.backward else ()
        )
        self.epsilon = epsilon_of(self._built.session.given)
        changing = any(
            not given.constant for given in self._built.session.given
        ) and not isinstance(bench.benchmark, Collected)
        self.unrefereed = (
            ""
            if changing
            else "none of its inputs is drawn by ci_bench.inputs, to have other values"
        )
        self._plain = self._whole if bench.backward else self._forward
        self.step = self._plain

    def rounding(self) -> float:
        """The coarsest rounding inside of a call, for the rule of numbers once the clock has stopped."""
        return self._built.inside(self.epsilon).epsilon

    def _forward(self, mark: Mark) -> None:  # noqa: ARG002 - it has no parts
        self._built.left = None
        self._built.left = self._built.call()

    def _whole(self, mark: Mark) -> None:
        self._built.drop_gradients()
        self._built.forward()
        mark()
        self._built.backward()
        mark()

    def remember(self) -> None:
        """Keep the prepared inputs."""
        self._built.remember()

    def state(self) -> dict[str, Tensor]:
        """Return nothing: outputs depend only on drawn inputs and constants of the code."""
        return {}

    def refresh(
        self,
        seed: int,
        *,
        moved: bool,  # noqa: ARG002 - the protocol's signature
        state: Mapping[str, Tensor] | None = None,  # noqa: ARG002 - likewise
        shaken: int = 0,
    ) -> bool:
        """Write other values into the inputs in place: calls compute from these very tensors.

        Shaken runs are moved by the roundings inside of the call as well.
        """
        jolted = shaken >= JOLTED
        if shaken:
            mode, plain = watch_roundings(self.epsilon, seed=shaken, serial=jolted), self._plain

            def noisy(mark: Mark) -> None:
                with mode:
                    plain(mark)

            self.step = noisy
        size = jolt_of(self.epsilon) if jolted else 0.0
        return self._built.write(Draw(seed=seed, noise=shaken, epsilon=size or self.epsilon))

    def operands(self) -> list[Tensor]:
        """The inputs of the calls, constants included."""
        return list(self._built.session.tensors)

    def alter(
        self, seed: int, *, shaken: int = 0, all_values: bool = False
    ) -> Callable[[], None] | None:
        """Prepare a write of a few other values of `seed`, or of all, into the inputs, where they lie."""
        return self._built.alter(
            Draw(seed=seed, noise=shaken, epsilon=self.epsilon), all_values=all_values
        )

    def weights(self) -> dict[str, Tensor]:
        """Return nothing: other inputs of calls are constants of the code."""
        return {}

    def results(self) -> dict[str, Tensor]:
        """The results of the first call; empty if a part of them cannot be compared."""
        return self._built.comparable()

    def outputs(self) -> dict[str, Tensor]:
        """The results of the last call, and the gradients of its inputs."""
        return self._built.outputs()

    def resume(self) -> None:
        """Back to the prepared values."""
        self.step = self._plain
        self._built.restore()

    def finish(self) -> tuple[Check, ...]:
        """Check an arm without a second arm: after all its calls, its results follow its inputs."""
        if not self._alone or self.unrefereed:
            return ()
        before, seed = self._built.copies(), secrets.randbits(31) + 1
        return (verify_followed(self._bench, self._arm, self._built, before, seed=seed),)

    def close(self) -> None:
        """Clean up after the provider."""
        self._built.close()
