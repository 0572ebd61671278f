"""The rules of numbers that are scored: ours, the three that the suites had before, the dynamo runner's, and plain closeness.

Each takes one result beside all that is known of the case, and says whether it would refuse it. The
old rules are kept as they were, so that the table can be made again.
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
    """All that is known of a case: its numbers, the truth, and what eager makes of it, shaken and not; `moved` is shaken fp64."""

    work: Work
    numbers: Numbers
    precision: str
    truth: Tensors
    runs: tuple[Tensors, ...]
    jolts: tuple[Tensors, ...]
    moved: tuple[Tensors, ...]

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


def ours(seen: Tensors, trial: Trial) -> Outcome:
    """The shared rule."""
    return agree(
        seen, truth=trial.truth, runs=trial.runs, epsilon=trial.epsilon, jolts=trial.jolts
    ).outcome


def _formed(seen: Tensors, trial: Trial) -> bool:
    eager = trial.runs[0]
    return seen.keys() == eager.keys() and all(
        value.dtype == eager[name].dtype and value.shape == eager[name].shape
        for name, value in seen.items()
    )


def torchbench_before(seen: Tensors, trial: Trial) -> Outcome:
    """Both norms; 30 (fp32) or 3 times the largest of the runs' distances, and 8 roundings."""
    multiplier = 30.0 if trial.epsilon <= EPSILONS["fp32"] else 3.0
    if not _formed(seen, trial):
        return Outcome.FAIL
    blind = {"output": True, "gradient": True}
    for name, truth in trial.truth.items():
        for norm in (_two, _largest):
            noise = max(norm(one[name].double() - truth) for one in trial.runs)
            allowed = multiplier * noise + 8 * trial.epsilon * norm(truth)
            if not norm(seen[name].double() - truth) <= allowed:
                return Outcome.FAIL
            if norm is _two and allowed < _two(truth) / 2:
                blind[name.partition(":")[0]] = False
    return Outcome.UNKNOWN if any(blind.values()) else Outcome.PASS


def transformers_before(seen: Tensors, trial: Trial) -> Outcome:
    """The 2-norm; 4 times eager's own error (at least the median of its kind) and 8 roundings, more for few elements."""
    if not _formed(seen, trial) or not all(
        bool(torch.isfinite(value).all()) for value in seen.values()
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
            if not _two(seen[name].double() - trial.truth[name]) / scale[name] <= limit:
                return Outcome.FAIL
    return Outcome.PASS


def fastrnns_before(seen: Tensors, trial: Trial) -> Outcome:
    """Root mean square and largest element; 8 times what a shaken start moves in fp64, and typical roundings of sums over rows.

    Behind ReLUs, gradients in the mean alone, to a tenth; outputs of convolutions to 32 times.
    """
    if seen.keys() != trial.truth.keys() or any(
        seen[name].shape != value.shape for name, value in trial.truth.items()
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
        moved = max(_worse(one[name], truth, mean=kinked) for one in trial.moved)
        bound = max(
            (32.0 if images and not kinked else 8.0) * (moved + floor), 0.1 if kinked else 0.0
        )
        if not _worse(seen[name].double(), truth, mean=kinked) <= bound:
            return Outcome.FAIL
        vague = vague or bound >= 1
    return Outcome.UNKNOWN if vague else Outcome.PASS


def dynamo_runner(seen: Tensors, trial: Trial) -> Outcome:
    """PyTorch's benchmark runner: `same` with the tolerance of its zoo in training."""
    if seen.keys() != trial.truth.keys():
        return Outcome.FAIL
    tolerance = 1e-3 if trial.precision != "bf16" else 1e-2
    rule = RunnerRule(tolerance=tolerance, equal_nan=trial.precision != "fp32")
    kept = all(
        agrees(value, trial.runs[0][name], trial.truth[name], rule) for name, value in seen.items()
    )
    return Outcome.PASS if kept else Outcome.FAIL


CLOSE = {torch.float32: (1.3e-6, 1e-5), torch.bfloat16: (1.6e-2, 1e-5), torch.float16: (1e-3, 1e-5)}
"""`torch.testing.assert_close`'s own (relative, absolute)."""


def assert_close(seen: Tensors, trial: Trial) -> Outcome:
    """`torch.testing.assert_close` against eager, with its defaults for the format in use."""
    if not _formed(seen, trial):
        return Outcome.FAIL
    narrow = torch.bfloat16 if trial.precision == "amp_bf16" else KEPT_IN[trial.precision]
    relative, absolute = CLOSE[narrow]
    kept = all(
        torch.allclose(value, trial.runs[0][name], rtol=relative, atol=absolute)
        for name, value in seen.items()
    )
    return Outcome.PASS if kept else Outcome.FAIL


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


def _worse(seen: Tensor, truth: Tensor, *, mean: bool) -> float:
    difference = seen.double() - truth
    if not bool(difference.isfinite().all()):
        return math.inf
    shares = [(difference.square().mean().sqrt(), truth.square().mean().sqrt())]
    shares += [] if mean else [(difference.abs().max(), truth.abs().max())]
    return max(
        0.0 if not float(part) else float(part / whole) if float(whole) else math.inf
        for part, whole in shares
    )
