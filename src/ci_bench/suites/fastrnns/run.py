"""The worker's half of `fastrnns`: one case as a workload. Imports torch; never imported by the parent.

Seed, number format and determinism: weights, inputs, states and gradients follow `seed` and are the same bytes for both arms;
TF32 is off for every kind of product unless `allow_tf32`, so that library and hand-written arms round alike; torch's
deterministic mode is off. Warm-up is the engine's.
"""

from dataclasses import replace

import torch

from ci_bench.records.case import Case, Check, Fact, Outcome
from ci_bench.suites.base import Context, Evidence, Program, Unsupported, no_mark
from ci_bench.suites.fastrnns.agreement import Expected, Verdict, compare, expect
from ci_bench.suites.fastrnns.forms import require_torchscript
from ci_bench.suites.fastrnns.given import Given, draw
from ci_bench.suites.fastrnns.knobs import apply_knobs
from ci_bench.suites.fastrnns.masks import check_masks
from ci_bench.suites.fastrnns.networks import Network, build_network
from ci_bench.suites.fastrnns.options import Job, parse_job
from ci_bench.suites.fastrnns.program import TimedProgram
from ci_bench.suites.fastrnns.reference import observe, reference_for
from ci_bench.suites.fastrnns.variants import VARIANTS, Form, Task

AMPERE = 8
ROUNDS_BEFORE = 2
"""Steps before the gradients are looked at: one that is not zeroed shows in the third round as three times itself."""


def open_workload(case: Case, context: Context) -> "RnnWorkload":
    """The workload of one case. Raises `Unsupported` where this machine or this torch cannot run the variant."""
    job = parse_job(case.params)
    _require(job, context.device)
    torch.backends.cuda.matmul.allow_tf32 = job.options.allow_tf32
    torch.backends.cudnn.allow_tf32 = job.options.allow_tf32
    if job.variant.form.is_torchscript:
        require_torchscript()
        apply_knobs(job.options)
    return RnnWorkload(job, context)


class RnnWorkload:
    """Runs a variant and its reference on the same start."""

    def __init__(self, job: Job, context: Context) -> None:
        """Nothing is drawn yet."""
        self._job = job
        self._context = context

    def prepare(self) -> None:
        """Nothing to fetch."""

    def open(self, arm: str) -> Program:
        """A fresh network of the arm, ready to be timed."""
        job, given = self._arm(arm), self._given(arm)
        return self._program(job, given, build_network(job, given))

    def verify(self, arms: tuple[str, ...]) -> Evidence:
        """Outputs, states and gradients of every arm against the reference of what it computes."""
        checks = []
        facts: dict[str, Fact] = {}
        for index, arm in enumerate(arms):
            job = self._arm(arm)
            verdict, words, parameters = self._verify(job, self._given(arm))
            detail = f"with {words}: {verdict.detail}"
            checks.append(Check(name="agrees", arm=arm, outcome=verdict.outcome, detail=detail))
            if job.variant.name == self._job.variant.name:
                facts = {"parameters": parameters, "compared_with": words}
            self._context.progress(arm, index + 1, len(arms))
        return Evidence(checks=tuple(checks), facts=facts)

    def _verify(self, job: Job, given: Given) -> tuple[Verdict, str, int]:
        """The verdict, what the arm was compared with, and its parameters."""
        reference = reference_for(job)
        network = build_network(job, given)
        parameters = sum(parameter.numel() for parameter in network.parameters.values())
        network.drop(False)
        program = self._program(job, given, network)
        for _ in range(ROUNDS_BEFORE):
            program.step(no_mark)
        seen = observe(network, given.gradient, backward=reference.backward)
        verdict = compare(seen, self._expected(job, given))
        if job.variant.task is Task.DROPOUT and verdict.outcome is not Outcome.FAIL:
            masks = check_masks(job, self._context.device)
            verdict = masks if masks.outcome is not Outcome.PASS else replace(verdict, detail=f"{verdict.detail}; {masks.detail}")
        return verdict, reference.words, parameters

    def _expected(self, job: Job, given: Given) -> Expected:
        return expect(job, given, reference_for(job))

    def _program(self, job: Job, given: Given, network: Network) -> TimedProgram:
        return TimedProgram(job, network, given.gradient, forward_only=self._job.variant.forward_only)

    def _given(self, arm: str) -> Given:
        given = draw(self._arm(arm))
        return given.to(given.gradient.dtype, self._context.device)

    def _arm(self, arm: str) -> Job:
        """The job of an arm: the case's own, or its reference's at the same options."""
        variant = VARIANTS[arm]
        return replace(self._job, variant=variant, mode=self._job.mode if variant.form is Form.COMPILE else None)


def _require(job: Job, device: str) -> None:
    """Skip what this machine has no library or no units for."""
    on_gpu = device.startswith("cuda")
    has_cudnn = on_gpu and torch.backends.cudnn.is_available()  # type: ignore[no-untyped-call]
    if job.variant.form is Form.LIBRARY and not has_cudnn:
        message = f"{job.variant.name} needs cuDNN, so a CUDA GPU; {_substitute(job)} runs torch's own kernels instead"
        raise Unsupported(message)
    if job.options.allow_tf32 and not (on_gpu and torch.cuda.get_device_capability(device)[0] >= AMPERE):
        message = "allow_tf32 needs an NVIDIA GPU of compute capability 8.0 or newer"
        raise Unsupported(message)


def _substitute(job: Job) -> str:
    """The variant that is the same without cuDNN."""
    same = (one for one in VARIANTS.values() if one.form is Form.ATEN)
    return next(one.name for one in same if (one.task, one.structure) == (job.variant.task, job.variant.structure))
