"""The work that tells a machine's noise: it is measured like any case, and says when it computed nothing."""

import pytest

torch = pytest.importorskip("torch")

from ci_bench.records.results import Outcome  # noqa: E402
from ci_bench.suites.contract import Context, no_mark  # noqa: E402
from ci_bench.suites.reference_kernels.plan import SUITE, WORK  # noqa: E402
from ci_bench.suites.reference_kernels.run import KernelProgram, open_workload  # noqa: E402

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("case", SUITE.plan({}), ids=WORK)
def test_each_work_runs_and_is_finite(case, tmp_path):
    context = Context(device="cpu", scratch=tmp_path, progress=lambda *_: None)
    program = open_workload(case, context).open("eager")
    program.step(no_mark)
    (check,) = program.finish()
    assert check.outcome is Outcome.PASS
    assert [stage.kind for stage in SUITE.stages(case)] == ["time"]


@pytest.mark.parametrize("steps", [0, 1])
def test_a_kernel_that_computed_nothing_or_nonsense_says_so(steps):
    program = KernelProgram(lambda: torch.tensor([1.0, float("inf")]))
    for _ in range(steps):
        program.step(no_mark)
    (check,) = program.finish()
    assert check.outcome is Outcome.FAIL
