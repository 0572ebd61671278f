"""The suite's work, in worker processes, with the kernels of the side's own tree."""

import torch
from kernels import rms_norm

from ci_bench.records.results import Case, Check, Outcome
from ci_bench.suites.contract import Compiler, Context, Evidence, Mark, Part

TOLERANCE = 1e-5


def open_workload(case: Case, context: Context) -> "Shape":
    """Open the workload, once in each worker process."""
    return Shape(case, context.device)


class Shape:
    """The same rows for all arms and both sides."""

    def __init__(self, case: Case, device: str) -> None:
        """Draw the inputs from one seed, on the device."""
        torch.manual_seed(0)
        self.rows = torch.randn(case.params["rows"], case.params["width"]).to(device)
        self.weight = torch.rand(case.params["width"]).to(device)

    def prepare(self) -> None:
        """Do nothing: there is nothing to fetch or to compile."""

    def open(self, arm: str) -> "Call":
        """Return an arm, ready to be timed."""
        return Call(arm, self)

    def call(self, arm: str) -> torch.Tensor:
        """Call an arm's kernel, which is measured."""
        if arm == "library":
            return rms_norm(self.rows, self.weight)
        return torch.nn.functional.rms_norm(self.rows, self.weight.shape, self.weight, 1e-6)

    def verify(self, arms: tuple[str, ...]) -> Evidence:
        """Compare each candidate with the formula in double precision."""
        wide = self.rows.double()
        exact = (
            wide
            * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + 1e-6)
            * self.weight.double()
        )
        return Evidence(checks=tuple(self._check(arm, exact) for arm in arms if arm != "torch"))

    def _check(self, arm: str, exact: torch.Tensor) -> Check:
        error = (self.call(arm).double() - exact).abs().max().item()
        outcome = Outcome.PASS if error <= TOLERANCE else Outcome.FAIL
        return Check(
            name="accuracy",
            arm=arm,
            outcome=outcome,
            detail=f"off by {error:.2g} at most, {TOLERANCE:g} is allowed",
        )


class Call:
    """One call of one arm, which is timed."""

    parts: tuple[Part, ...] = ()
    compiler = Compiler.NONE

    def __init__(self, arm: str, shape: Shape) -> None:
        """Set `items`, by which ci-bench shows rows per second."""
        self._arm, self._shape, self.items = arm, shape, len(shape.rows)

    def step(self, mark: Mark) -> None:  # noqa: ARG002 - a call has no parts
        """Call the kernel once."""
        self._shape.call(self._arm)

    def finish(self) -> tuple[Check, ...]:
        """Return no checks: `verify` has checked the very same call."""
        return ()
