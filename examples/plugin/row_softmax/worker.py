"""How it is measured: the half of the suite that runs in worker processes, on the side's own code."""

import torch

from ci_bench.records.case import Case, Check, Outcome
from ci_bench.suites.base import Compiler, Context, Evidence, Mark, Part, Unsupported
from row_softmax.kernel import RowSoftmax, build

TOLERANCE = 1e-6


def open_workload(case: Case, context: Context) -> "Workload":
    """Called once in each worker process."""
    if context.device != "cpu":
        message = "this kernel is for the CPU"
        raise Unsupported(message)
    return Workload(case, context)


class Workload:
    """One size."""

    def __init__(self, case: Case, context: Context) -> None:
        """The same matrix for all arms and both sides."""
        self._folder, self._rows = context.scratch, case.params["rows"]
        torch.manual_seed(0)
        self._matrix = 50 * torch.randn(self._rows, case.params["columns"])

    def prepare(self) -> None:
        """Compile this side's kernel; `scratch` is kept for the case's other stages."""
        build(self._folder)

    def open(self, arm: str) -> "Program":
        """An arm, ready to be timed."""
        return Program(self._softmax(arm), self._matrix, self._rows, arm)

    def verify(self, arms: tuple[str, ...]) -> Evidence:
        """Compare each candidate with torch's own softmax in double precision."""
        exact = self._matrix.double().softmax(dim=1)
        return Evidence(checks=tuple(self._compare(arm, exact) for arm in arms if arm != "torch"))

    def _softmax(self, arm: str):  # noqa: ANN202
        return RowSoftmax(self._folder / "kernel.so") if arm == "kernel" else lambda matrix: matrix.softmax(dim=1)

    def _compare(self, arm: str, exact: torch.Tensor) -> Check:
        error = (self._softmax(arm)(self._matrix).double() - exact).abs().max().item()
        outcome = Outcome.PASS if error <= TOLERANCE else Outcome.FAIL  # NaN is no pass, either
        return Check(name="accuracy", arm=arm, outcome=outcome, detail=f"off by {error:.2g} at most, {TOLERANCE:g} is allowed")


class Program:
    """What the clock sees: `step` is one call."""

    parts: tuple[Part, ...] = ()
    compiler = Compiler.NONE

    def __init__(self, softmax, matrix: torch.Tensor, rows: int, arm: str) -> None:  # noqa: ANN001
        """`items` lets ci-bench show rows per second."""
        self._softmax, self._matrix, self.items, self._arm = softmax, matrix, rows, arm
        self._result = matrix

    def step(self, mark: Mark) -> None:  # noqa: ARG002 - a call has no parts to mark
        """One call."""
        self._result = self._softmax(self._matrix)

    def finish(self) -> tuple[Check, ...]:
        """What was timed is a softmax: each row sums to one."""
        error = (self._result.sum(dim=1) - 1).abs().max().item()
        outcome = Outcome.PASS if error <= 1e-4 else Outcome.FAIL  # noqa: PLR2004
        return (Check(name="normalised", arm=self._arm, outcome=outcome, detail=f"rows sum to 1 within {error:.2g}"),)
