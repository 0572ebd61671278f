"""The step of one arm: forward, backward, and outside both parts the zeroing of gradients.

Input, states and output gradient are the same in every step, so the timed steps are the verified
ones. The output is dropped with the step. A scripted arm runs a few rounds in its first step, until
TorchScript's executor has optimised both directions. Their time is part of the translation's
latency, less one steady step.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ci_bench.records.results import Check, Outcome
from ci_bench.suites.contract import Compiler, Mark, Part, no_mark
from ci_bench.suites.fastrnns.agreement import rounding_of
from ci_bench.suites.fastrnns.initial_state import GivenState
from ci_bench.suites.fastrnns.library import Outputs
from ci_bench.suites.fastrnns.networks import Network
from ci_bench.suites.fastrnns.options import FastrnnsJob
from ci_bench.suites.fastrnns.plan import BACKWARD, FORWARD
from ci_bench.suites.fastrnns.variants import Form
from ci_bench.suites.shared.worker.freshness import (
    GRADIENTS,
    WEIGHTS,
    State,
    part_of,
    prepared_write,
)
from ci_bench.suites.shared.worker.numerics import shaken as shake

SETTLING_ROUNDS = 4
"""More than the profiling executor needs: it profiles, then optimises, first the forward graph and
then the backward graph.
"""


class TimedProgram:
    """One arm for the clock."""

    learns = False
    memory = 0.0

    def __init__(
        self, job: FastrnnsJob, network: Network, given: GivenState, *, forward_only: bool
    ) -> None:
        """Take a `network` built on `given`; without backward (`forward_only`) it has one part."""
        gradient = given.gradient
        options = job.options
        names = (FORWARD,) if forward_only else (FORWARD, BACKWARD)
        self.items: int | None = (
            options.cnn_batch_size if job.variant.is_convolutional else options.batch_size
        )
        self.parts: tuple[Part, ...] = tuple(Part(metric=name) for name in names)
        self.compiler = _compiler(job.variant.form)
        self._arm = job.arm
        self._network = network
        self._gradient = gradient
        self._forward_only = forward_only
        self._settling = SETTLING_ROUNDS if job.variant.form.is_torchscript else 0
        self.epsilon = rounding_of(job)
        apart = job.variant.structure == "library_layernorm"
        self.unrefereed = (
            "the norms next to the module do not enter its results, but the reference's norms do"
            if apart
            else ""
        )
        self._given = (*given.inputs, *given.states, gradient)
        self._prepared = tuple(value.data for value in self._given)
        self._before: tuple[Tensor, ...] = ()
        self._keeps = False
        self._left: Outputs | None = None
        self._marks_steps = job.mode is not None and job.mode.uses_cudagraphs and gradient.is_cuda

    def step(self, mark: Mark) -> None:
        """Forward, backward where there is one, and zero the gradients."""
        for _ in range(self._settling):
            self._round(no_mark)
        self._settling = 0
        self._round(mark)

    def _round(self, mark: Mark) -> None:
        if self._marks_steps:
            # CUDA graphs write into the same memory again; this says that the last step's outputs
            # may go.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        if self._left is not None and not self._forward_only:
            self._network.zero_gradients()
        output, states = self._network.forward()
        mark()
        if self._keeps:
            self._left = output, states
        if self._forward_only:
            return
        torch.autograd.backward([output], [self._gradient])
        mark()
        if not self._keeps:
            self._network.zero_gradients()

    def remember(self) -> None:
        """Nothing: inputs are drawn, and no step changes the weights."""

    def weights(self) -> State:
        """The weights."""
        return dict(self._network.parameters)

    def state(self) -> State:
        """The weights, on the host."""
        return {
            f"{WEIGHTS}{name}": value.detach().to("cpu", copy=True)
            for name, value in self._network.parameters.items()
        }

    def refresh(
        self, seed: int, *, moved: bool, state: Mapping[str, Tensor] | None = None, shaken: int = 0
    ) -> bool:
        """Take other inputs, states and output gradient from now on, and keep a round's results.

        They are standard normal. The network keeps its tensors, so their memory is written.
        """
        self.resume()
        self._keeps = True
        with torch.no_grad():
            for name, value in self._network.parameters.items():
                if state is not None:
                    value.copy_(state[f"{WEIGHTS}{name}"])
        generator = torch.Generator().manual_seed(seed)
        fresh = {
            str(place): _drawn_like(value, generator) for place, value in enumerate(self._given)
        }
        if shaken:
            fresh = shake(fresh, self.epsilon, torch.Generator().manual_seed(shaken))
        self._before = () if moved else tuple(value.clone() for value in self._prepared)
        for value, other in zip(self._given, fresh.values(), strict=True):
            if moved:
                value.data = other
            else:
                value.data.copy_(other)
        return True

    def operands(self) -> list[Tensor]:
        """Inputs, states and output gradient."""
        return list(self._given)

    def alter(
        self, seed: int, *, shaken: int = 0, all_values: bool = False
    ) -> Callable[[], None] | None:
        """Prepare a write of a few other values of `seed`, or of all, into them, where they lie."""
        coin, generator = (torch.Generator().manual_seed(one) for one in (seed, seed + 1))
        parts = [
            value.data if all_values else value.data[part_of(value, coin)] for value in self._given
        ]
        fresh = {str(place): _drawn_like(part, generator) for place, part in enumerate(parts)}
        if shaken:
            fresh = shake(fresh, self.epsilon, torch.Generator().manual_seed(shaken))
        return prepared_write(list(zip(parts, fresh.values(), strict=True)))

    def results(self) -> State:
        """The results of one more round.

        The first one kept nothing, and all rounds compute the same.
        """
        self._keeps = True
        self._round(no_mark)
        left = {name: value.detach().clone() for name, value in self.outputs().items()}
        self.resume()
        return left

    def outputs(self) -> State:
        """Output, final states, and the gradients of the last round, which were not zeroed."""
        if self._left is None:
            return {}
        output, states = self._left
        found = {
            "output": output,
            **{f"state.{index}": state for index, state in enumerate(states)},
        }
        if self._forward_only:
            return found
        gradients = {name: value.grad for name, value in self._network.parameters.items()}
        return found | {
            f"{GRADIENTS}{name}": value for name, value in gradients.items() if value is not None
        }

    def resume(self) -> None:
        """Return to the given inputs, with gradients of zero."""
        for value, prepared in zip(self._given, self._prepared, strict=True):
            value.data = prepared
        for prepared, before in zip(self._prepared, self._before, strict=False):
            prepared.copy_(before)
        if self._keeps and not self._forward_only:
            self._network.zero_gradients()
        self._before, self._left, self._keeps = (), None, False

    def finish(self) -> tuple[Check, ...]:
        """Once the clock has stopped: the gradients are zero, and one more round gives numbers."""
        if self._forward_only:
            output, _ = self._network.forward()
            return (_finite(self._arm, {"output": output}),)
        gradients = {
            name: value.grad
            for name, value in self._network.parameters.items()
            if value.grad is not None
        }
        left = [name for name, value in gradients.items() if bool(value.count_nonzero())]
        output, _ = self._network.forward()
        torch.autograd.backward([output], [self._gradient])
        finite = _finite(
            self._arm,
            {
                "output": output,
                **{f"gradient of {name}": value for name, value in gradients.items()},
            },
        )
        self._network.zero_gradients()
        return (_zeroed(self._arm, left, len(gradients)), finite)


def _drawn_like(value: Tensor, generator: torch.Generator) -> Tensor:
    drawn = torch.randn(value.shape, generator=generator, dtype=torch.float32)
    return torch.empty_like(value).copy_(drawn)


def _compiler(form: Form) -> Compiler:
    if form is Form.COMPILE:
        return Compiler.DYNAMO
    return Compiler.OTHER if form.is_torchscript else Compiler.NONE


def _zeroed(arm: str, left: list[str], count: int) -> Check:
    detail = (
        f"{len(left)} of {count} gradients were left from the round before: {', '.join(left[:5])}"
    )
    detail = detail if left else f"all {count} gradients were zero after the last timed round"
    return Check(
        name="gradients_zeroed",
        arm=arm,
        outcome=Outcome.FAIL if left else Outcome.PASS,
        detail=detail,
    )


def _finite(arm: str, values: dict[str, Tensor]) -> Check:
    bad = [name for name, value in values.items() if not bool(value.isfinite().all())]
    detail = (
        f"not finite after the last timed round: {', '.join(bad[:5])}"
        if bad
        else f"{len(values)} tensors are finite"
    )
    return Check(
        name="finite", arm=arm, outcome=Outcome.FAIL if bad else Outcome.PASS, detail=detail
    )
