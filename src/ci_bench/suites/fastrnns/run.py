"""The worker's half of `fastrnns`: one case as a workload.

Imports torch; never imported by the parent.

Seed, number format and determinism: weights, inputs, states and gradients follow `seed` and are the
same bytes for both arms. TF32 is off for every kind of product unless `allow_tf32`: library and
hand-written arms round alike. torch's deterministic mode is off. Warm-up is the engine's.

Fuser, executor and code-generation knobs of TorchScript are set for the whole worker process before
anything is built, with the effects of the original tool: `te` and `old` choose fuser and executor
together, an executor that is named wins.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from ci_bench.records.first_calls import FirstCall
from ci_bench.records.forms import Fact
from ci_bench.records.results import Case, Check, Outcome
from ci_bench.suites.contract import Context, Evidence, Program, Unsupported, no_mark
from ci_bench.suites.fastrnns.agreement import (
    AgreementVerdict,
    ExpectedValues,
    as_computed,
    check_masks,
    compare,
    expect,
    rnn_computed,
)
from ci_bench.suites.fastrnns.initial_state import GivenState, draw
from ci_bench.suites.fastrnns.networks import Network, build_network, require_torchscript
from ci_bench.suites.fastrnns.options import (
    Executor,
    FastrnnsJob,
    FastrnnsOptions,
    Fuser,
    parse_job,
)
from ci_bench.suites.fastrnns.program import TimedProgram
from ci_bench.suites.fastrnns.reference import observe, reference_for
from ci_bench.suites.fastrnns.variants import VARIANTS, FastrnnsTask, Form
from ci_bench.suites.shared.planning.arms import without_cuda_graphs
from ci_bench.suites.shared.worker.compiling import allow_compilations
from ci_bench.suites.shared.worker.first_calls import read_call, read_start, verified
from ci_bench.suites.shared.worker.fp32_precision import set_fp32_precision

Setting = tuple[str, bool | int]
"""The name of a private function of torch, and its argument."""

FUSERS: Mapping[Fuser, tuple[Setting, ...]] = {
    Fuser.TE: (
        ("_jit_set_profiling_executor", True),
        ("_jit_set_profiling_mode", True),
        ("_jit_override_can_fuse_on_cpu", False),
        ("_jit_override_can_fuse_on_gpu", True),
        ("_jit_set_texpr_fuser_enabled", True),
    ),
    Fuser.OLD: (
        ("_jit_set_profiling_executor", False),
        ("_jit_set_profiling_mode", False),
        ("_jit_override_can_fuse_on_gpu", True),
        ("_jit_set_texpr_fuser_enabled", False),
    ),
    Fuser.NONE: (
        ("_jit_set_profiling_executor", False),
        ("_jit_set_profiling_mode", False),
        ("_jit_override_can_fuse_on_gpu", False),
        ("_jit_override_can_fuse_on_cpu", False),
        ("_jit_set_texpr_fuser_enabled", False),
    ),
    Fuser.DEFAULT: (),
}
EXECUTORS: Mapping[Executor, tuple[Setting, ...]] = {
    Executor.PROFILING: (("_jit_set_profiling_executor", True), ("_jit_set_profiling_mode", True)),
    Executor.SIMPLE: (("_jit_set_profiling_executor", True), ("_jit_set_profiling_mode", False)),
    Executor.LEGACY: (("_jit_set_profiling_executor", False), ("_jit_set_profiling_mode", False)),
    Executor.DEFAULT: (),
}


def settings(options: FastrnnsOptions) -> Iterator[Setting]:
    """Yield all that the options set, in the order in which it is applied."""
    yield from FUSERS[options.fuser]
    yield from EXECUTORS[options.executor]
    knobs = {
        "_jit_set_te_cuda_pointwise_loop_levels": options.cuda_pointwise_loop_level,
        "_jit_set_te_cuda_pointwise_block_count": options.cuda_pointwise_block_count,
        "_jit_set_te_cuda_pointwise_block_size": options.cuda_pointwise_block_size,
    }
    yield from ((name, value) for name, value in knobs.items() if value is not None)


def apply_knobs(options: FastrnnsOptions) -> None:
    """Apply the settings of TorchScript.

    Raises:
        Unsupported: this torch lacks one of them.
    """
    for name, value in settings(options):
        knob = getattr(torch._C, name, None)  # noqa: SLF001 - TorchScript has no public way to set these
        if knob is None:
            message = (
                f"torch {torch.__version__} lacks {name}, which fuser {options.fuser} and executor"
                f" {options.executor} need"
            )
            raise Unsupported(message)
        knob(value)


AMPERE = 8
AGREES = "agrees"
ROUNDS_BEFORE = 2
"""Steps before the gradients are looked at: one that is not zeroed shows in the third round as
three times itself.
"""


def open_workload(case: Case, context: Context) -> "RnnWorkload":
    """Return the workload of one case.

    Raises `Unsupported` if this machine or this torch cannot run the variant.
    """
    job = parse_job(case.params)
    _require(job, context.device)
    set_fp32_precision(tf32=job.options.allow_tf32)
    if job.variant.form.is_torchscript:
        require_torchscript()
        apply_knobs(job.options)
    return RnnWorkload(job, context)


class RnnWorkload:
    """Runs a variant and its reference on the same start."""

    def __init__(self, job: FastrnnsJob, context: Context) -> None:
        """Draw nothing yet."""
        self._job = job
        self._context = context
        self._opened = 0

    def prepare(self) -> None:
        """Fetch nothing."""

    def open(self, arm: str) -> Program:
        """Build a network of the arm, ready to be timed."""
        self._opened += 1
        allow_compilations(self._opened)
        job, start = self._job.of_arm(arm), self._draw_start(arm)
        return self._program(job, start, build_network(job, start))

    def verify(self, arms: tuple[str, ...]) -> Evidence:
        """Compare outputs, states and gradients of every arm with the reference of its task."""
        checks = []
        facts: dict[str, Fact] = {}
        begun: dict[str, FirstCall] = {}
        modes: dict[str, str | None] = {}
        for index, arm in enumerate(arms):
            job = self._job.of_arm(arm)
            allow_compilations(1 + index)
            verdict, words, parameters, begun[arm] = self._verify(
                job, self._draw_start(arm), is_reference=index == 0
            )
            detail = f"with {words}: {verdict.detail}"
            checks.append(Check(name=AGREES, arm=arm, outcome=verdict.outcome, detail=detail))
            if job.variant.name == self._job.variant.name:
                facts = {"parameters": parameters, "compared_with": words}
            modes[arm] = job.mode
            self._context.progress(arm, index + 1, len(arms))
        graphs = without_cuda_graphs(modes, self._context.device)
        return Evidence(checks=tuple(checks), facts={**facts, **graphs}, begun=begun)

    def _verify(
        self, job: FastrnnsJob, start: GivenState, *, is_reference: bool
    ) -> tuple[AgreementVerdict, str, int, FirstCall]:
        """Return the verdict, its basis, the number of parameters, and the arm's first call.

        The reference's results are kept. A pass is claimed, so a process without code of the tree
        compares it again.
        """
        reference = reference_for(job)
        network = build_network(job, start)
        parameters = sum(parameter.numel() for parameter in network.parameters.values())
        network.drop(False)
        program = self._program(job, start, network)
        digests = read_start(program.operands(), program.weights().items())
        for _ in range(ROUNDS_BEFORE):
            program.step(no_mark)
        observed = observe(network, start.gradient, backward=reference.backward)
        expected = self._expected(job, start)
        verdict = compare(observed, expected)
        runs, draws = (
            [read_call({}, run) for run in expected.runs],
            job.variant.task is FastrnnsTask.DROPOUT,
        )
        begun = verified(
            read_call(digests, observed), epsilon=expected.epsilon, runs=runs, draws=draws
        )
        if verdict.outcome is Outcome.PASS:
            self._context.claim(AGREES, job.arm, observed, as_computed(job, expected))
        if is_reference:
            self._context.keep(rnn_computed(job, start, observed, expected))
        if job.variant.task is FastrnnsTask.DROPOUT and verdict.outcome is not Outcome.FAIL:
            masks = check_masks(job, self._context.device)
            verdict = (
                masks
                if masks.outcome is not Outcome.PASS
                else replace(verdict, detail=f"{verdict.detail}; {masks.detail}")
            )
        return verdict, reference.words, parameters, begun

    def _expected(self, job: FastrnnsJob, start: GivenState) -> ExpectedValues:
        return expect(job, start, reference_for(job))

    def _program(self, job: FastrnnsJob, start: GivenState, network: Network) -> TimedProgram:
        return TimedProgram(job, network, start, forward_only=self._job.variant.forward_only)

    def _draw_start(self, arm: str) -> GivenState:
        start = draw(self._job.of_arm(arm))
        return start.to(start.gradient.dtype, self._context.device)


def _require(job: FastrnnsJob, device: str) -> None:
    """Skip variants for which this machine has no library or no units."""
    on_gpu = device.startswith("cuda")
    has_cudnn = on_gpu and torch.backends.cudnn.is_available()  # type: ignore[no-untyped-call]
    if job.variant.form is Form.LIBRARY and not has_cudnn:
        message = (
            f"{job.variant.name} needs cuDNN, so a CUDA GPU; {_substitute(job)} runs torch's own"
            " kernels instead"
        )
        raise Unsupported(message)
    if job.options.allow_tf32 and not (
        on_gpu and torch.cuda.get_device_capability(device)[0] >= AMPERE
    ):
        message = "allow_tf32 needs an NVIDIA GPU of compute capability 8.0 or newer"
        raise Unsupported(message)


def _substitute(job: FastrnnsJob) -> str:
    """Return the name of the variant that is the same without cuDNN."""
    same = (variant for variant in VARIANTS.values() if variant.form is Form.ATEN)
    return next(
        variant.name
        for variant in same
        if (variant.task, variant.structure) == (job.variant.task, job.variant.structure)
    )
