"""The step of one arm: forward, backward, and outside both parts the zeroing of gradients.

Input, states and output gradient are the same in every step, so that what is timed is what was verified. The output is dropped
with the step. A scripted arm runs a few rounds in its first step, until TorchScript's executor has optimised both directions:
their time is part of the translation's latency, less one steady step.
"""

import torch
from torch import Tensor

from ci_bench.records.case import Check, Outcome
from ci_bench.suites.base import Compiler, Mark, Part, no_mark
from ci_bench.suites.fastrnns.networks import Network
from ci_bench.suites.fastrnns.options import Job
from ci_bench.suites.fastrnns.plan import BACKWARD, FORWARD
from ci_bench.suites.fastrnns.variants import Form

SETTLING_ROUNDS = 4
"""More than the profiling executor needs: it profiles, then optimises, first the forward graph and then the backward graph."""


class TimedProgram:
    """One arm for the clock."""

    def __init__(self, job: Job, network: Network, gradient: Tensor, *, forward_only: bool) -> None:
        """`gradient` is driven into the output in each step; without backward (`forward_only`) there is one part."""
        options = job.options
        names = (FORWARD,) if forward_only else (FORWARD, BACKWARD)
        self.items: int | None = options.cnn_batch_size if job.variant.is_convolutional else options.batch_size
        self.parts: tuple[Part, ...] = tuple(Part(metric=name) for name in names)
        self.compiler = _compiler(job.variant.form)
        self._arm = job.variant.name
        self._network = network
        self._gradient = gradient
        self._forward_only = forward_only
        self._settling = SETTLING_ROUNDS if job.variant.form.is_torchscript else 0
        self._marks_steps = job.mode is not None and job.mode.uses_cudagraphs and gradient.is_cuda

    def step(self, mark: Mark) -> None:
        """Forward, backward where there is one, and zero the gradients."""
        for _ in range(self._settling):
            self._round(no_mark)
        self._settling = 0
        self._round(mark)

    def _round(self, mark: Mark) -> None:
        if self._marks_steps:
            # CUDA graphs write into the same memory again; this says that the last step's outputs may go.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        output, _ = self._network.forward()
        mark()
        if self._forward_only:
            return
        torch.autograd.backward([output], [self._gradient])
        mark()
        self._network.zero_gradients()

    def finish(self) -> tuple[Check, ...]:
        """Once the clock has stopped: the gradients are zero, and one more round gives numbers."""
        if self._forward_only:
            output, _ = self._network.forward()
            return (_finite(self._arm, {"output": output}),)
        gradients = {name: value.grad for name, value in self._network.parameters.items() if value.grad is not None}
        left = [name for name, value in gradients.items() if bool(value.count_nonzero())]
        output, _ = self._network.forward()
        torch.autograd.backward([output], [self._gradient])
        finite = _finite(self._arm, {"output": output, **{f"gradient of {name}": value for name, value in gradients.items()}})
        self._network.zero_gradients()
        return (_zeroed(self._arm, left, len(gradients)), finite)


def _compiler(form: Form) -> Compiler:
    if form is Form.COMPILE:
        return Compiler.DYNAMO
    return Compiler.OTHER if form.is_torchscript else Compiler.NONE


def _zeroed(arm: str, left: list[str], count: int) -> Check:
    detail = f"{len(left)} of {count} gradients were left from the round before: {', '.join(left[:5])}"
    detail = detail if left else f"all {count} gradients were zero after the last timed round"
    return Check(name="gradients_zeroed", arm=arm, outcome=Outcome.FAIL if left else Outcome.PASS, detail=detail)


def _finite(arm: str, values: dict[str, Tensor]) -> Check:
    bad = [name for name, value in values.items() if not bool(value.isfinite().all())]
    detail = f"not finite after the last timed round: {', '.join(bad[:5])}" if bad else f"{len(values)} tensors are finite"
    return Check(name="finite", arm=arm, outcome=Outcome.FAIL if bad else Outcome.PASS, detail=detail)
