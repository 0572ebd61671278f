"""The suite's second half: runs in worker processes, on the side's own code."""

import torch

from ci_bench.records.results import Case, Check, Outcome
from ci_bench.suites.contract import Compiler, Computed, Context, Evidence, Mark, Part, Unsupported
from ci_bench.suites.shared.worker.digests import digest
from ci_bench.suites.shared.worker.numerics import FP32_EPSILON, agree, shaken
from row_softmax.kernel import RowSoftmax, build


def open_workload(case: Case, context: Context) -> "Workload":
    """Open the workload, once in each worker process."""
    if context.device != "cpu":
        message = "this kernel is for the CPU"
        raise Unsupported(message)
    return Workload(case, context)


class Workload:
    """One size."""

    def __init__(self, case: Case, context: Context) -> None:
        """Draw the same matrix for all arms and both sides."""
        self._folder, self._rows, self._keep = context.scratch, case.params["rows"], context.keep
        torch.manual_seed(0)
        self._matrix = 50 * torch.randn(self._rows, case.params["columns"])

    def prepare(self) -> None:
        """Compile this side's kernel; `scratch` is kept for the case's other stages."""
        build(self._folder)

    def open(self, arm: str) -> "Program":
        """Return an arm, ready to be timed."""
        return Program(self._softmax(arm), self._matrix, self._rows, arm)

    def verify(self, arms: tuple[str, ...]) -> Evidence:
        """Compare each candidate with torch's softmax in double precision.

        Runs in single precision show how far rounding goes. The kernel's output is kept, to be
        compared with base's.
        """
        generator = torch.Generator().manual_seed(1)
        matrices = [
            self._matrix,
            *(shaken({"x": self._matrix}, FP32_EPSILON, generator)["x"] for _ in range(2)),
        ]
        truth = {"output": self._matrix.double().softmax(dim=1)}
        runs = [{"output": matrix.softmax(dim=1)} for matrix in matrices]
        ours, inputs = {"output": self._softmax("kernel")(self._matrix)}, [digest(self._matrix)]
        self._keep(
            Computed(
                arm="kernel",
                epsilon=FP32_EPSILON,
                outputs=ours,
                inputs=inputs,
                truth=truth,
                runs=runs,
            )
        )
        return Evidence(
            checks=tuple(self._compare(arm, truth, runs) for arm in arms if arm != "torch")
        )

    def _softmax(self, arm: str):  # noqa: ANN202
        return (
            RowSoftmax(self._folder / "kernel.so")
            if arm == "kernel"
            else lambda matrix: matrix.softmax(dim=1)
        )

    def _compare(
        self, arm: str, truth: dict[str, torch.Tensor], runs: list[dict[str, torch.Tensor]]
    ) -> Check:
        outputs = {"output": self._softmax(arm)(self._matrix)}
        agreement = agree(outputs, truth=truth, runs=runs, epsilon=FP32_EPSILON)
        return Check(name="accuracy", arm=arm, outcome=agreement.outcome, detail=agreement.detail)


class Program:
    """Softmax of one arm, which is timed; `step` is one call."""

    parts: tuple[Part, ...] = ()
    compiler = Compiler.NONE

    def __init__(self, softmax, matrix: torch.Tensor, rows: int, arm: str) -> None:  # noqa: ANN001
        """Set `items`, by which ci-bench shows rows per second."""
        self._softmax, self._matrix, self.items, self._arm = softmax, matrix, rows, arm
        self._result = matrix

    def step(self, mark: Mark) -> None:  # noqa: ARG002 - a call has no parts to mark
        """Call the kernel once."""
        self._result = self._softmax(self._matrix)

    def finish(self) -> tuple[Check, ...]:
        """Check that the timed result is a softmax: each row sums to one."""
        error = (self._result.sum(dim=1) - 1).abs().max().item()
        outcome = Outcome.PASS if error <= 1e-4 else Outcome.FAIL  # noqa: PLR2004
        return (
            Check(
                name="normalised",
                arm=self._arm,
                outcome=outcome,
                detail=f"rows sum to 1 within {error:.2g}",
            ),
        )
