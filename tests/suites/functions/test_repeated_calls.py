"""Timed calls of `functions` that are wrong now and then, or remember a part, and results that say little of each row."""

import pytest
from functions_builders import agrees, context, plan, write
from refereeing import referee_checks

from ci_bench.records.results import Outcome

pytestmark = pytest.mark.engine

LAYER = """
    import time

    seen, calls = {{}}, []

    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return {gradient}

    def forgetful(gradient):
        calls.append(None)
        return gradient * (0 if len(calls) % 12 == 11 else 1)

    def slowly(gradient, key):
        for _ in range(1 if seen.get("last") == key else 12):
            torch.tanh(gradient @ gradient.T)
        seen["last"] = key
        return gradient

    @ci_bench.benchmark(backward=True, provider="theirs")
    def square():
        (x,) = ci_bench.inputs(1, (96, 96))
        return lambda: Rounded.apply(x)

    @square.provider("torch", reference=True)
    def _():
        (x,) = ci_bench.inputs(1, (96, 96))
        return lambda: x * x
"""
GRADIENTS = {
    "right": ("gradient * 2 * x", Outcome.PASS, "a fault in 5 % of calls shows"),
    "wrong in every twelfth call": ("forgetful(gradient * 2 * x)", Outcome.FAIL, "gradient: 0"),
    "remembered by value": (
        "slowly(gradient * 2 * x, float(x[0, 0]))",
        Outcome.FAIL,
        "remembers results",
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_backward_passes_are_held_to_each_call(tree, name):
    from ci_bench.suites.functions.run import open_workload

    gradient, outcome, said = GRADIENTS[name]
    write(tree, LAYER.format(gradient=gradient))
    case = plan(tree)[0]
    check = referee_checks(open_workload(case, context(tree)), case.arms, context(tree))["theirs"]
    assert check.outcome is outcome, check
    assert said in check.detail, check


MEAN = """
    @ci_bench.benchmark(provider="theirs")
    def f():
        (x,) = ci_bench.inputs(1, (1024, 64), "{dtype}")
        return lambda: {mine}

    @f.provider("torch", reference=True)
    def _():
        (x,) = ci_bench.inputs(1, (1024, 64), "{dtype}")
        return lambda: {theirs}
"""
SQUARES = "x.square().mean()"
RESULTS = {
    "a mean": ("bf16", SQUARES, SQUARES, Outcome.PASS, "half of the rows"),
    "a mean in fp32": ("fp32", SQUARES, SQUARES, Outcome.PASS, ""),
    "a mean in another precision": (
        "bf16",
        "x.float().square().mean().bfloat16()",
        SQUARES,
        Outcome.PASS,
        "",
    ),
    "the first half's mean": (
        "bf16",
        "x[:512].square().mean()",
        SQUARES,
        Outcome.FAIL,
        "half of the rows",
    ),
    "every second row's mean": (
        "bf16",
        "x[::2].square().mean()",
        SQUARES,
        Outcome.FAIL,
        "half of the rows",
    ),
    "a mean of ones": (
        "bf16",
        "x[::2].softmax(1).sum(1).mean()",
        "x.softmax(1).sum(1).mean()",
        Outcome.UNKNOWN,
        "one number",
    ),
    "an input overwritten": (
        "fp32",
        "x.mul_(2)",
        "x * 2",
        Outcome.FAIL,
        "the reference leaves it alone",
    ),
    "an input left alone": ("fp32", "x * 2", "x.mul_(2)", Outcome.FAIL, "it leaves it alone"),
    "an input overwritten by both": ("fp32", "x.mul_(2)", "x.add_(x.clone())", Outcome.PASS, ""),
}


@pytest.mark.parametrize("name", RESULTS)
def test_inputs_and_few_numbers_are_verified(tree, name):
    dtype, mine, theirs, outcome, said = RESULTS[name]
    check = agrees(tree, MEAN.format(dtype=dtype, mine=mine, theirs=theirs))["theirs"]
    assert check.outcome is outcome, check
    assert said in check.detail, check
