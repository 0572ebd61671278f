"""The scored rules of numbers: ours, former ones, the dynamo runner's, and plain closeness.

Each takes one result and a trial, and returns whether it would refuse the result. The three former
rules of the suites are unchanged, so that the table can be made again.
"""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.numerics_works import EPSILONS, KEPT_IN, Numbers, Tensors, Work, draw, run
from ci_bench.records.results import Outcome
from ci_bench.suites.shared.worker.numerics import agree, jolt_of, shaken
from ci_bench.suites.torchbench.verdict import RunnerRule, agrees

SHAKES = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One case: its numbers, and results of its reference."""

    work: Work
    """The work that is computed."""
    numbers: Numbers
    """Its weights and inputs."""
    precision: str
    """The precision, as in `EPSILONS`."""
    truth: Tensors
    """The reference in fp64."""
    runs: tuple[Tensors, ...]
    """The reference in the precision, first from the numbers, then from shaken ones."""
    jolts: tuple[Tensors, ...]
    """The reference in the precision, from strongly shaken numbers."""
    moved: tuple[Tensors, ...]
    """The reference in fp64 from shaken numbers."""

    @property
    def epsilon(self) -> float:
        """One rounding of the precision."""
        return EPSILONS[self.precision]


def make_trial(work: Work, precision: str, seed: int) -> Trial:
    """Run the reference of a work as often as any of the rules asks for."""
    numbers, epsilon = draw(work, precision, seed), EPSILONS[precision]
    generator = torch.Generator().manual_seed(1000 + seed)

    def shake(by: float, *, exact: bool = False) -> Tensors:
        wide = {name: value.double() if exact else value for name, value in numbers.weights.items()}
        off = Numbers(weights=shaken(wide, by, generator), inputs=numbers.inputs, seed=numbers.seed)
        return run(work.reference, off, precision, exact=exact)

    jolt = jolt_of(epsilon)
    return Trial(
        work=work,
        numbers=numbers,
        precision=precision,
        truth=run(work.reference, numbers, precision, exact=True),
        runs=(run(work.reference, numbers, precision), *(shake(epsilon) for _ in range(SHAKES))),
        jolts=(shake(jolt),) if jolt else (),
        moved=tuple(shake(epsilon, exact=True) for _ in range(SHAKES)),
    )


def ours(result: Tensors, trial: Trial) -> Outcome:
    """Judge by the shared rule."""
    return agree(
        result, truth=trial.truth, runs=trial.runs, epsilon=trial.epsilon, jolts=trial.jolts
    ).outcome


def _formed(result: Tensors, trial: Trial) -> bool:
    eager = trial.runs[0]
    return result.keys() == eager.keys() and all(
        value.dtype == eager[name].dtype and value.shape == eager[name].shape
        for name, value in result.items()
    )


def torchbench_before(result: Tensors, trial: Trial) -> Outcome:
    """Judge both norms by the runs' distances.

    The limit is 30 (fp32) or 3 times the largest of them, and 8 roundings.
    """
    multiplier = 30.0 if trial.epsilon <= EPSILONS["fp32"] else 3.0
    if not _formed(result, trial):
        return Outcome.FAIL
    blind = {"output": True, "gradient": True}
    for name, truth in trial.truth.items():
        for norm in (_two, _largest):
            noise = max(norm(run[name].double() - truth) for run in trial.runs)
            allowed = multiplier * noise + 8 * trial.epsilon * norm(truth)
            if not norm(result[name].double() - truth) <= allowed:
                return Outcome.FAIL
            if norm is _two and allowed < _two(truth) / 2:
                blind[name.partition(":")[0]] = False
    return Outcome.UNKNOWN if any(blind.values()) else Outcome.PASS


def transformers_before(result: Tensors, trial: Trial) -> Outcome:
    """Judge the 2-norm by eager's own error.

    The limit is 4 times that (at least the median of its kind) and 8 roundings, more for few
    elements.
    """
    if not _formed(result, trial) or not all(
        bool(torch.isfinite(value).all()) for value in result.values()
    ):
        return Outcome.FAIL
    kinds: dict[str, list[str]] = {}
    for name in trial.truth:
        kinds.setdefault(name.partition(":")[0], []).append(name)
    for members in kinds.values():
        count = sum(trial.truth[name].numel() for name in members)
        square = sum(_two(trial.truth[name]) ** 2 for name in members)
        scale = {
            name: max(
                _two(trial.truth[name]), math.sqrt(square * trial.truth[name].numel() / count)
            )
            for name in members
        }
        noise = {
            name: _two(trial.runs[0][name].double() - trial.truth[name]) / scale[name]
            for name in members
        }
        typical = statistics.median(noise.values())
        for name in members:
            few = 1 + math.sqrt(16 / max(trial.truth[name].numel(), 1))
            limit = min(
                (4 * max(noise[name], typical) + 8 * trial.epsilon) * few,
                max(0.9, 1.5 * noise[name]),
            )
            if not _two(result[name].double() - trial.truth[name]) / scale[name] <= limit:
                return Outcome.FAIL
    return Outcome.PASS


def fastrnns_before(result: Tensors, trial: Trial) -> Outcome:
    """Judge root mean square and largest element by a shaken start.

    The limit is 8 times what that moves in fp64, and typical roundings of sums over rows. Behind
    ReLUs, only the mean of gradients counts, to a tenth; outputs of convolutions count to 32 times.
    """
    if result.keys() != trial.truth.keys() or any(
        result[name].shape != value.shape for name, value in trial.truth.items()
    ):
        return Outcome.FAIL
    images = trial.work.name == "convolutional"
    rows = math.prod(next(iter(trial.work.inputs.values()))[:-1])
    sums = min(trial.epsilon, EPSILONS["fp32"])
    floor = 3.0**-0.5 * (
        trial.epsilon * math.sqrt(trial.numbers.inputs["x"].shape[0]) + sums * math.sqrt(rows)
    )
    vague = False
    for name, truth in trial.truth.items():
        kinked = images and name.startswith("gradient")
        moved = max(_worse(run[name], truth, mean=kinked) for run in trial.moved)
        bound = max(
            (32.0 if images and not kinked else 8.0) * (moved + floor), 0.1 if kinked else 0.0
        )
        if not _worse(result[name].double(), truth, mean=kinked) <= bound:
            return Outcome.FAIL
        vague = vague or bound >= 1
    return Outcome.UNKNOWN if vague else Outcome.PASS


def dynamo_runner(result: Tensors, trial: Trial) -> Outcome:
    """Judge as PyTorch's benchmark runner: `same` with the tolerance of its zoo in training."""
    if result.keys() != trial.truth.keys():
        return Outcome.FAIL
    tolerance = 1e-3 if trial.precision != "bf16" else 1e-2
    rule = RunnerRule(tolerance=tolerance, equal_nan=trial.precision != "fp32")
    is_close = all(
        agrees(value, trial.runs[0][name], trial.truth[name], rule)
        for name, value in result.items()
    )
    return Outcome.PASS if is_close else Outcome.FAIL


CLOSE = {torch.float32: (1.3e-6, 1e-5), torch.bfloat16: (1.6e-2, 1e-5), torch.float16: (1e-3, 1e-5)}
"""`torch.testing.assert_close`'s own (relative, absolute)."""


def assert_close(result: Tensors, trial: Trial) -> Outcome:
    """Judge by `torch.testing.assert_close` against eager, with its defaults for the format."""
    if not _formed(result, trial):
        return Outcome.FAIL
    narrow = torch.bfloat16 if trial.precision == "amp_bf16" else KEPT_IN[trial.precision]
    relative, absolute = CLOSE[narrow]
    is_close = all(
        torch.allclose(value, trial.runs[0][name], rtol=relative, atol=absolute)
        for name, value in result.items()
    )
    return Outcome.PASS if is_close else Outcome.FAIL


RULES: Mapping[str, Callable[[Tensors, Trial], Outcome]] = {
    "ci-bench": ours,
    "torchbench before": torchbench_before,
    "transformers before": transformers_before,
    "fastrnns before": fastrnns_before,
    "dynamo runner": dynamo_runner,
    "assert_close": assert_close,
}


def _two(value: Tensor) -> float:
    return float(torch.linalg.vector_norm(value.double()))


def _largest(value: Tensor) -> float:
    return float(value.double().abs().max())


def _worse(result: Tensor, truth: Tensor, *, mean: bool) -> float:
    difference = result.double() - truth
    if not bool(difference.isfinite().all()):
        return math.inf
    shares = [(difference.square().mean().sqrt(), truth.square().mean().sqrt())]
    shares += [] if mean else [(difference.abs().max(), truth.abs().max())]
    return max(
        0.0 if not float(part) else float(part / size) if float(size) else math.inf
        for part, size in shares
    )
