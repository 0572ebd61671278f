"""The same faults planted into a step of each suite, by its own path: all are refused, and without a fault none is."""

from dataclasses import replace
from itertools import cycle

import functions_builders
import pytest
import torch
import torchbench_builders
from benchmarks.numerics_faults import IN_GRADIENTS, IN_OUTPUTS, scaled
from fastrnns_builders import verified as fastrnns_verified
from torch.utils._pytree import tree_leaves
from transformers_builders import agrees as transformers_agrees
from transformers_builders import tiny

from ci_bench.records.results import Outcome
from ci_bench.suites.fastrnns import run as fastrnns_run
from ci_bench.suites.functions import run as functions_run
from ci_bench.suites.registry import BUILT_IN
from ci_bench.suites.transformers import steps
from ci_bench.suites.transformers.parts import make_parts
from ci_bench.suites.transformers.run import open_program

pytestmark = pytest.mark.engine

PRECISIONS = ("fp32", "bf16", "fp16", "amp_bf16")
FASTRNNS_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


class Late:
    """Right at first, and wrong from the second call on."""

    def __init__(self, change):
        self.change, self.calls = change, 0

    def __call__(self, value):
        self.calls += 1
        return value if self.calls == 1 else self.change(value)


class Stale:
    """What came out first comes out ever after."""

    def __init__(self):
        self.kept = None

    def __call__(self, value):
        if self.kept is None:
            self.kept = value.clone()
        return self.kept


OUTPUT_FAULTS = {
    **{name: lambda change=change: change for name, change in IN_OUTPUTS.items()},
    "wrong from the second call on": lambda: Late(IN_OUTPUTS["first row zeroed"]),
}
GRADIENT_FAULTS = {name: lambda change=change: change for name, change in IN_GRADIENTS.items()}
OF_SEVERAL_INPUTS = {"stale": Stale}
"""fastrnns takes the same input in every step."""


def table(faults, precisions=PRECISIONS):
    """Each fault in the first precision and in one of the others, which take turns."""
    others = cycle(precisions[1:])
    named = [(precision, name) for name in faults for precision in (precisions[0], next(others))]
    cases = [(precision, faults[name]) for precision, name in named]
    return pytest.mark.parametrize(
        ("precision", "make"), cases, ids=[f"{name}-{precision}" for precision, name in named]
    )


def spoil(value, change):
    """In place, whatever holds the tensor."""
    with torch.no_grad():
        value.detach().copy_(change(value.detach().clone()))


def spoil_largest_gradient(parameters, change):
    spoil(
        max((one.grad for one in parameters if one.grad is not None), key=torch.Tensor.numel),
        change,
    )


def largest(output):
    """The largest floating tensor of an output: logits, mostly."""
    tensors = [
        leaf
        for leaf in tree_leaves(output)
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    ]
    return max(tensors, key=torch.Tensor.numel)


# torchbench


def torchbench(change, *, gradients=False, precision="fp32", model="decoder", **entry):
    mode = "training" if gradients else "inference"
    case, workload = torchbench_builders.opened(
        models=[model], mode=mode, precision=precision, **entry
    )
    build = workload._build

    def spoilt(*, candidate, exact=False):
        ready = build(candidate=None, exact=exact)
        if candidate is None:
            return ready
        if gradients:
            ready.optimizer.register_step_pre_hook(
                lambda *_: spoil_largest_gradient(ready.module.parameters(), change)
            )
            return ready

        def step(sample, mark):
            loss, outputs = ready.step(sample, mark)
            spoil(largest(outputs), change)
            return loss, outputs

        return replace(ready, step=step)

    workload._build = spoilt
    return torchbench_builders.checks_of(workload.verify(case.arms))["accuracy"]


@table({**OUTPUT_FAULTS, **OF_SEVERAL_INPUTS})
def test_a_fault_of_an_output_is_refused_by_torchbench(precision, make):
    check = torchbench(make(), precision=precision)
    assert check.outcome is Outcome.FAIL, check.detail


def test_half_a_thousandth_is_refused_by_torchbench():
    assert torchbench(scaled).outcome is Outcome.FAIL


@table(GRADIENT_FAULTS)
def test_a_fault_of_a_gradient_is_refused_by_torchbench(precision, make):
    check = torchbench(make(), gradients=True, precision=precision)
    assert check.outcome is Outcome.FAIL, check.detail


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_without_a_fault_torchbench_agrees(precision, gradients):
    check = torchbench(lambda value: value, gradients=gradients, precision=precision)
    assert check.outcome is Outcome.PASS, check.detail


# transformers


class Spoilt(steps.Inference):
    change = staticmethod(lambda value: value)

    def step(self, mark):
        super().step(mark)
        spoil(largest(list(steps.tensors_of(self._output).values())), self.change)


class SpoiltTraining(steps.Training):
    change = staticmethod(lambda value: value)

    def __init__(self, parts):
        super().__init__(parts)
        self._optimizer.register_step_pre_hook(
            lambda *_: spoil_largest_gradient(self.model.parameters(), self.change)
        )


def transformers(change, *, gradients=False, precision="fp32", model="bert"):
    """Many tokens, so that one of them is a small part of the norm."""
    kind = SpoiltTraining if gradients else Spoilt

    def open_one(recipe, arm, script):
        if arm == "eager":
            return open_program(recipe, arm, script)
        made = kind(replace(make_parts(recipe, arm), candidate=None))
        made.change = change
        return made

    sizes = {"batch_size": 16, "sequence_length": 32, "prepared_inputs": 2}
    return transformers_agrees(
        open_one,
        **tiny(model),
        mode="training" if gradients else "inference",
        precision=precision,
        **sizes,
    )


@table({**OUTPUT_FAULTS, **OF_SEVERAL_INPUTS})
def test_a_fault_of_an_output_is_refused_by_transformers(precision, make):
    check = transformers(make(), precision=precision)
    assert check.outcome is Outcome.FAIL, check.detail


def test_half_a_thousandth_is_refused_by_transformers():
    assert transformers(scaled).outcome is Outcome.FAIL


@table(GRADIENT_FAULTS)
def test_a_fault_of_a_gradient_is_refused_by_transformers(precision, make):
    check = transformers(make(), gradients=True, precision=precision)
    assert check.outcome is Outcome.FAIL, check.detail


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("model", ["bert", "llama"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_without_a_fault_transformers_agrees(model, precision, gradients):
    check = transformers(lambda value: value, gradients=gradients, precision=precision, model=model)
    assert check.outcome is Outcome.PASS, check.detail


# fastrnns


def fastrnns(monkeypatch, change, *, gradients=False, precision="fp32"):
    real = fastrnns_run.build_network

    def spoilt(job, given):
        network = real(job, given)
        if job.variant.name != "py":
            return network
        if gradients:
            one = max(network.parameters.values(), key=torch.Tensor.numel)
            one.register_hook(lambda gradient: change(gradient.clone()))
            return network

        def forward():
            output, states = network.forward()
            return output + (change(output.detach().clone()) - output.detach()), states

        return replace(network, forward=forward)

    monkeypatch.setattr(fastrnns_run, "build_network", spoilt)
    return fastrnns_verified("py", dtype=FASTRNNS_DTYPES[precision], hidden_size=16, input_size=16)[
        "py"
    ]


@table(OUTPUT_FAULTS, tuple(FASTRNNS_DTYPES))
def test_a_fault_of_an_output_is_refused_by_fastrnns(monkeypatch, precision, make):
    check = fastrnns(monkeypatch, make(), precision=precision)
    assert check.outcome is Outcome.FAIL, check.detail


def test_half_a_thousandth_is_refused_by_fastrnns(monkeypatch):
    assert fastrnns(monkeypatch, scaled).outcome is Outcome.FAIL


@table(GRADIENT_FAULTS, tuple(FASTRNNS_DTYPES))
def test_a_fault_of_a_gradient_is_refused_by_fastrnns(monkeypatch, precision, make):
    check = fastrnns(monkeypatch, make(), gradients=True, precision=precision)
    assert check.outcome is Outcome.FAIL, check.detail


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("precision", FASTRNNS_DTYPES)
def test_without_a_fault_fastrnns_agrees(monkeypatch, precision, gradients):
    check = fastrnns(monkeypatch, lambda value: value, gradients=gradients, precision=precision)
    assert check.outcome is Outcome.PASS, check.detail


# functions

PRODUCT = """
    PLANTED = []

    @ci_bench.benchmark(dtype=["{dtype}"], backward={gradients}, provider="theirs")
    def product(dtype):
        (x,), (w,) = ci_bench.inputs(1, (48, 32), dtype), ci_bench.inputs(1, (32, 16), dtype)
        return lambda: PLANTED[0](x, w)

    @product.provider("torch", reference=True)
    def _(dtype):
        (x,), (w,) = ci_bench.inputs(1, (48, 32), dtype), ci_bench.inputs(1, (32, 16), dtype)
        return lambda: (x @ w).relu()
"""


def functions(tree, change, *, gradients=False, precision="fp32"):
    """The planted code stands in the user's own file, in place of an expression."""

    def planted(x, w):
        out = (x @ w).relu()
        if not gradients:
            return (
                out + (change(out.detach().clone()) - out.detach())
                if out.requires_grad
                else change(out.clone())
            )
        copy = x * 1  # of whose gradient the hook makes another one, before it reaches x
        copy.register_hook(lambda gradient: change(gradient.clone()))
        return (copy @ w).relu()

    real = functions_run.open_workload

    def opened(case, context):
        workload = real(case, context)
        workload._bench.benchmark.function.__globals__["PLANTED"][:] = [planted]
        return workload

    functions_builders.write(tree, PRODUCT.format(dtype=precision, gradients=gradients))
    (case,) = functions_builders.plan(tree)
    evidence = opened(case, functions_builders.context(tree)).verify(case.arms)
    return next(
        check for check in evidence.checks if check.name == "agrees" and check.arm == "theirs"
    )


FUNCTIONS_PRECISIONS = ("fp32", "bf16", "fp16")


@table({**OUTPUT_FAULTS, **OF_SEVERAL_INPUTS}, FUNCTIONS_PRECISIONS)
def test_a_fault_of_an_output_is_refused_by_functions(tree, precision, make):
    check = functions(tree, make(), precision=precision)
    assert check.outcome is Outcome.FAIL, check.detail


def test_half_a_thousandth_is_refused_by_functions(tree):
    assert functions(tree, scaled).outcome is Outcome.FAIL


@table(GRADIENT_FAULTS, FUNCTIONS_PRECISIONS)
def test_a_fault_of_a_gradient_is_refused_by_functions(tree, precision, make):
    check = functions(tree, make(), gradients=True, precision=precision)
    assert check.outcome is Outcome.FAIL, check.detail


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("precision", FUNCTIONS_PRECISIONS)
def test_without_a_fault_functions_agrees(tree, precision, gradients):
    check = functions(tree, lambda value: value, gradients=gradients, precision=precision)
    assert check.outcome is Outcome.PASS, check.detail


def test_no_suite_that_computes_is_forgotten():
    """A command computes by itself; the faults of a training are in `training_loss`'s own `test_negative_controls`."""
    tested = {name for name in BUILT_IN if f"test_without_a_fault_{name}_agrees" in globals()}
    assert tested == BUILT_IN.keys() - {"command", "training_loss"}
