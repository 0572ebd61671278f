"""A provider is right in any order of summation, and wrong by one element, by a share, by what it computed before, by its form."""

import re

import pytest

torch = pytest.importorskip("torch")

from functions_builders import agrees, context, evidence, plan, write  # noqa: E402

from ci_bench.records.results import Better, Outcome, Unit  # noqa: E402
from ci_bench.suites.contract import no_mark  # noqa: E402
from ci_bench.suites.functions import verify  # noqa: E402
from ci_bench.suites.functions.drawing import BadBenchmark  # noqa: E402
from ci_bench.suites.functions.run import open_workload  # noqa: E402

pytestmark = pytest.mark.engine

SUMS = """
    @ci_bench.benchmark(dtype=["{dtype}"], provider="theirs")
    def sums(dtype):
        (x,) = ci_bench.inputs(1, (64, 300), dtype)
        {before}
        return lambda: {mine}

    @sums.provider("torch", reference=True)
    def _(dtype):
        (x,) = ci_bench.inputs(1, (64, 300), dtype)
        return lambda: x.softmax(-1).cumsum(-1)
"""
RIGHT = {
    "the same": ("pass", "x.softmax(-1).cumsum(-1)"),
    "another order": (
        "p = lambda: x.exp() / x.exp().sum(-1, keepdim=True)",
        "p() + 1 - p().flip(-1).cumsum(-1).flip(-1)",
    ),
    "wider inside": ("pass", "x.double().softmax(-1).cumsum(-1).to(x.dtype)"),
    "a view taken before": ("y = x.view(-1, 300)", "y.softmax(-1).cumsum(-1)"),
}
WRONG = {
    "one element": (
        "one = torch.zeros(64, 300, dtype=x.dtype); one[3, 7] = 0.5",
        "x.softmax(-1).cumsum(-1) + one",
    ),
    "a share": ("pass", "x.softmax(-1).cumsum(-1) * 1.0005"),
    "zeros": ("pass", "torch.zeros_like(x)"),
    "another type": ("pass", "x.double().softmax(-1).cumsum(-1)"),
    "another shape": ("pass", "x.softmax(-1).cumsum(-1)[:-1]"),
    "two in place of one": ("pass", "(x.softmax(-1).cumsum(-1), x)"),
    "not finite": ("pass", "x.softmax(-1).cumsum(-1) / 0"),
    "what was computed ahead": ("y = x.softmax(-1).cumsum(-1)", "y"),
    "a copy of what was computed ahead": ("y = x.softmax(-1).cumsum(-1)", "y.clone()"),
    "what a copy gives": ("y = x.clone()", "y.softmax(-1).cumsum(-1)"),
    "the first result by address": (
        "seen = {}; f = lambda: seen.setdefault((x.data_ptr(), x._version), x.softmax(-1).cumsum(-1) if not seen else 0)",
        "f()",
    ),
}


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp64"])
@pytest.mark.parametrize(("before", "mine"), RIGHT.values(), ids=RIGHT)
def test_a_right_provider_passes(tree, before, mine, dtype) -> None:
    found = agrees(tree, SUMS.format(before=before, mine=mine, dtype=dtype))
    assert {arm: check.outcome for arm, check in found.items()} == {
        "torch": Outcome.PASS,
        "theirs": Outcome.PASS,
    }, found


KINKED = """
    @ci_bench.benchmark(backward=True, provider="theirs")
    def layer():
        (x,), (w,) = ci_bench.inputs(1, (48, 32), "bf16"), ci_bench.inputs(1, (32, 16), "bf16")
        return lambda: {mine}

    @layer.provider("torch", reference=True)
    def _():
        (x,), (w,) = ci_bench.inputs(1, (48, 32), "bf16"), ci_bench.inputs(1, (32, 16), "bf16")
        return lambda: (x @ w).relu()
"""


def kinked(tree, mine):
    """A case, its workload, and a seed whose values tell nothing."""
    write(tree, KINKED.format(mine=mine))
    (case,) = plan(tree)
    workload = open_workload(case, context(tree))
    expected = (verify.expect(workload._bench, case.reference, seed) for seed in range(1, 300))
    outcomes = (one.agreement(one.runs[0]).outcome for one in expected)
    return (
        case,
        workload,
        next(seed for seed, found in enumerate(outcomes, 1) if found is Outcome.UNKNOWN),
    )


def test_prepared_values_next_to_a_kink_are_unknown_with_the_element_that_jumps_and_a_way_out(
    tree,
) -> None:
    case, workload, dull = kinked(tree, "(x @ w).relu()")
    workload._bench.seed = dull
    expected = verify.expect(workload._bench, case.reference, dull)
    (check,) = (
        one
        for one in workload.verify(case.arms).checks
        if one.name == "agrees" and one.arm == "theirs"
    )
    assert check.outcome is Outcome.UNKNOWN
    name, row, column, one, other = re.search(
        r"; (gradient[^\[]*)\[(\d+), (\d+)\] is (\S+), and (\S+) in another", check.detail
    ).groups()
    place = int(row), int(column)
    assert [f"{float(expected.runs[0][name][place]):.3g}"] == [one]
    assert other in {f"{float(run[name][place]):.3g}" for run in expected.runs[1:]}
    assert "another size has others" in check.detail


@pytest.mark.parametrize(
    ("mine", "outcome"),
    [
        ("(x @ w).relu()", Outcome.PASS),
        ("(x @ w).relu() + 0 * w.sum()", Outcome.PASS),
        ("x @ w", Outcome.FAIL),
    ],
)
def test_values_next_to_a_kink_that_tell_nothing_are_drawn_again(
    tree, monkeypatch, mine, outcome
) -> None:
    """One draw in ten here: gradients differ by as much as they are when one rounding turns a ReLU off."""
    case, workload, dull = kinked(tree, mine)
    drawn = iter([dull - 1, dull - 1, *range(10_000, 10_010)])
    monkeypatch.setattr(verify.secrets, "randbits", lambda _: next(drawn))
    (check,) = (
        one
        for one in workload.verify(case.arms).checks
        if one.name == "agrees" and one.arm == "theirs"
    )
    assert (check.outcome, next(drawn) > 10_000) == (outcome, True), check.detail


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("before", "mine"), WRONG.values(), ids=WRONG)
def test_a_wrong_provider_fails_alone(tree, before, mine, dtype) -> None:
    if dtype == "bf16" and mine.endswith("1.0005"):
        pytest.skip("that is less than a rounding of bf16")
    found = agrees(tree, SUMS.format(before=before, mine=mine, dtype=dtype))
    assert (found["theirs"].outcome, found["torch"].outcome) == (Outcome.FAIL, Outcome.PASS), found[
        "theirs"
    ].detail


def test_what_was_computed_ahead_is_told_with_the_way_out(tree) -> None:
    source = SUMS.format(before="y = x.softmax(-1).cumsum(-1)", mine="y", dtype="fp32")
    detail = agrees(tree, source)["theirs"].detail
    assert "it returned what it had returned before" in detail
    assert "constant=True" in detail


PACKED = """
    @ci_bench.benchmark(provider="theirs")
    def packed():
        (x,) = ci_bench.inputs(1, (8, 16))
        (w,) = ci_bench.inputs(1, (16, 4), {constant})
        y = w.t().contiguous()
        return lambda: torch.nn.functional.linear(x, y)

    @packed.provider("torch", reference=True)
    def _():
        (x,) = ci_bench.inputs(1, (8, 16))
        (w,) = ci_bench.inputs(1, (16, 4), {constant})
        return lambda: x @ w
"""


def test_what_is_constant_may_be_prepared_ahead_and_nothing_else(tree) -> None:
    assert agrees(tree, PACKED.format(constant="constant=True"))["theirs"].outcome is Outcome.PASS
    assert agrees(tree, PACKED.format(constant=""))["theirs"].outcome is Outcome.FAIL


def test_gradients_are_compared_too(tree) -> None:
    source = """
        @ci_bench.benchmark(backward=True, provider="theirs")
        def double():
            (x,) = ci_bench.inputs(1, (32, 8))
            return lambda: {mine}

        @double.provider("torch", reference=True)
        def _():
            (x,) = ci_bench.inputs(1, (32, 8))
            return lambda: x.sin()
    """
    right = agrees(tree, source.format(mine="torch.sin(x) + 0"))["theirs"]
    wrong = agrees(
        tree, source.format(mine="x.detach().sin() + 0.999 * (x.sin() - x.sin().detach())")
    )["theirs"]
    assert right.outcome is Outcome.PASS
    assert (wrong.outcome, "gradient: 0" in wrong.detail) == (Outcome.FAIL, True), wrong.detail


def test_other_inputs_than_the_references_are_told(tree) -> None:
    source = """
        @ci_bench.benchmark(provider="theirs")
        def f():
            (x,) = ci_bench.inputs(1, (4, 8))
            return lambda: x.t().exp()

        @f.provider("torch", reference=True)
        def _():
            (x,) = ci_bench.inputs(1, (8, 4))
            return lambda: x.exp()
    """
    check = agrees(tree, source)["theirs"]
    assert check.outcome is Outcome.FAIL
    assert (
        "other inputs than the reference (float32[4, 8] instead of float32[8, 4])" in check.detail
    )


def test_tuples_mappings_numbers_and_whole_numbers_are_compared_by_name(tree) -> None:
    source = """
        @ci_bench.benchmark(provider="theirs")
        def f():
            (x,) = ci_bench.inputs(1, (64,))
            (i,) = ci_bench.inputs(1, (64,), "int64", high=1000)
            return lambda: {{"pair": (x.exp(), i + {more}), "sum": float(x.double().sum())}}

        @f.provider("torch", reference=True)
        def _():
            (x,) = ci_bench.inputs(1, (64,))
            (i,) = ci_bench.inputs(1, (64,), "int64", high=1000)
            return lambda: {{"pair": (x.exp(), i + 1), "sum": float(x.double().sum())}}
    """
    assert agrees(tree, source.format(more=1))["theirs"].outcome is Outcome.PASS
    wrong = agrees(tree, source.format(more="(i < 0).long()"))["theirs"]
    assert (wrong.outcome, wrong.detail.count("output: pair/1")) == (Outcome.FAIL, 1)


def test_a_reference_that_computes_something_else_in_fp64_is_no_truth(tree) -> None:
    source = """
        @ci_bench.benchmark(provider="theirs")
        def f():
            (x,) = ci_bench.inputs(1, (64,))
            return lambda: x.exp() * {share}

        @f.provider("torch", reference=True)
        def _():
            (x,) = ci_bench.inputs(1, (64,))
            return lambda: x.exp() * (3 if x.dtype == torch.float64 else 1)
    """
    right, wrong = (agrees(tree, source.format(share=share))["theirs"] for share in (1, 1.01))
    assert (right.outcome, wrong.outcome) == (Outcome.PASS, Outcome.FAIL)
    assert "in its own precision, as it does not take fp64" in right.detail


def test_random_numbers_are_drawn_alike(tree) -> None:
    source = """
        @ci_bench.benchmark(provider="theirs")
        def drop():
            (x,) = ci_bench.inputs(1, (64, 64))
            w = torch.randn(64, 64)
            return lambda: torch.nn.functional.dropout(x * w, 0.5)

        @drop.provider("torch", reference=True)
        def _():
            (x,) = ci_bench.inputs(1, (64, 64))
            w = torch.randn(64, 64)
            return lambda: torch.nn.functional.dropout(w * x, 0.5)
    """
    assert agrees(tree, source)["theirs"].outcome is Outcome.PASS


def test_what_the_reference_computed_is_kept_for_the_other_side_with_what_rounding_does(
    tree,
) -> None:
    kept = []
    evidence(
        tree,
        SUMS.format(before="pass", mine="x.softmax(-1).cumsum(-1)", dtype="fp32"),
        keep=kept.append,
    )
    (computed,) = kept
    names = ["output", "output of the second call", "output of the last call"]
    assert (computed.arm, [*computed.outputs], len(computed.runs)) == ("torch", names, 3)
    assert computed.outputs[names[1]] is computed.outputs["output"], "it is kept once"
    assert computed.truth["output"].dtype == torch.float64
    assert len(computed.inputs) == 1


ALONE = """
    KEPT = {{}}

    @ci_bench.benchmark(n=[64])
    def alone(n):
        (x,) = ci_bench.inputs(1, (n,))
        {before}
        return lambda: {mine}
"""


HALF_WHEN_CACHED = """
    @ci_bench.benchmark(n=[64])
    def alone(n):
        (x,) = ci_bench.inputs(1, (n,))
        angles, kept = torch.arange(n) * 0.1, []

        def table():
            if not kept:
                kept.append(angles{cached})
                return angles
            return kept[0]

        return lambda: x * table().sin()
"""


def test_a_wrong_second_call_allows_nothing_and_is_kept(tree) -> None:
    """A table that is cached in half precision: the first call is right, the others are off by 1 %."""
    kept = []
    evidence(tree, HALF_WHEN_CACHED.format(cached=".half().float()"), keep=kept.append)
    (computed,) = kept
    first, second = computed.outputs["output"], computed.outputs["output of the second call"]
    noise = max((run["output"] - first).abs().max() for run in computed.runs)
    assert 10 * noise < 1e-4 < (second - first).abs().max()


@pytest.mark.parametrize(
    "mine", ["x * calls.__iadd__([1]).__len__()", "x.add_(1) * 2", "x * torch.rand(n)"]
)
def test_what_keeps_state_from_call_to_call_is_refused_by_no_check(tree, mine) -> None:
    found = evidence(tree, ALONE.format(before="calls = []", mine=mine)).checks
    assert all(check.outcome is not Outcome.FAIL for check in found), found
    assert finished(tree, "calls = []", mine)["fresh"].outcome is not Outcome.FAIL


def finished(tree, before, mine):
    write(tree, ALONE.format(before=before, mine=mine))
    (case,) = plan(tree)
    program = open_workload(case, context(tree)).open("alone")
    program.remember()
    for _ in range(50):
        program.step(no_mark)
    return {check.name: check for check in program.finish()}


def test_a_provider_that_is_alone_is_held_against_itself_on_other_values(tree) -> None:
    source = ALONE.format(before="y = x.exp()", mine="y")
    (check,) = [check for check in evidence(tree, source).checks if check.name == "agrees"]
    assert check.outcome is Outcome.FAIL
    assert finished(tree, "pass", "x.exp()")["fresh"].outcome is Outcome.PASS


def test_a_provider_that_is_alone_and_replays_once_it_is_timed_is_seen_when_the_clock_has_stopped(
    tree,
) -> None:
    """It computes the first ten times, and replays from then on."""
    before = "calls = []; f = lambda: KEPT.setdefault('y', x.exp()) if len(calls) > 10 else (calls.append(1), x.exp())[1]"
    check = finished(tree, before, "f()")["fresh"]
    assert check.outcome is Outcome.FAIL
    assert "it returned what it had returned before" in check.detail


def test_a_result_that_does_not_depend_on_the_inputs_is_unknown_and_fails_nothing(tree) -> None:
    check = finished(tree, "pass", "torch.arange(n)")["fresh"]
    assert (check.outcome, check.informative) == (Outcome.UNKNOWN, True)


def test_what_returns_nothing_is_timed_alone_and_refused_beside_others(tree) -> None:
    alone = "@ci_bench.benchmark\ndef f():\n    return lambda: None\n"
    (check,) = evidence(tree, alone).checks
    assert check.outcome is Outcome.UNKNOWN
    with pytest.raises(BadBenchmark, match="returns nothing"):
        evidence(tree, alone + "@f.provider('g')\ndef _():\n    return lambda: None\n")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return torch.ones(3)", "gives a Tensor instead of the function to time"),
        ("return lambda: object()", "returns a object, which defines no equality"),
        ("return lambda: ci_bench.inputs(1, (3,))", "called in the timed function"),
        ("yield lambda: torch.ones(1)\n    yield 1", "yields more than once"),
    ],
)
def test_a_benchmark_that_cannot_be_measured_says_what_to_change(tree, body, said) -> None:
    with pytest.raises(BadBenchmark, match=said):
        evidence(tree, f"@ci_bench.benchmark\ndef f():\n    {body}\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("1, (3,), 'fp33'", "dtype 'fp33' is neither one of"),
        ("1, (3,), 'int64'", "whole numbers need `high`"),
    ],
)
def test_inputs_that_cannot_be_drawn_say_so(tree, arguments, said) -> None:
    with pytest.raises(ValueError, match=said):
        evidence(
            tree,
            f"@ci_bench.benchmark\ndef f():\n    x = ci_bench.inputs({arguments})\n    return lambda: x\n",
        )


def test_inputs_are_of_the_cases_seed_the_same_in_every_arm_and_of_other_values_in_another_case(
    tree,
) -> None:
    source = """
        SEEN = []

        @ci_bench.benchmark(n=[1, 2])
        def f(n):
            SEEN.append(ci_bench.inputs(2, (3,), "bf16"))
            return lambda: SEEN[-1][0] + n

        @f.provider("g")
        def _(n):
            SEEN.append(ci_bench.inputs(2, (3,), "bf16"))
            return lambda: SEEN[-1][0] + n
    """
    write(tree, source)
    from ci_bench.suites.functions.importing import benchmarks

    one, two = plan(tree)
    for case in (one, two):
        for arm in case.arms:
            open_workload(case, context(tree)).open(arm)
    seen = benchmarks("bench.py")[0].function.__globals__["SEEN"]
    assert all(torch.equal(seen[0][k], seen[1][k]) for k in (0, 1))
    assert not torch.equal(seen[0][0], seen[0][1])
    assert not torch.equal(seen[0][0], seen[2][0])
    assert {value.dtype for drawn in seen for value in drawn} == {torch.bfloat16}


def test_setup_and_teardown_run_once_for_each_program(tree) -> None:
    source = """
        EVENTS = []

        @ci_bench.benchmark
        def f():
            EVENTS.append("up")
            (x,) = ci_bench.inputs(1, (3,))
            yield lambda: x + 1
            EVENTS.append("down")
    """
    write(tree, source)
    from ci_bench.suites.functions.importing import benchmarks

    (case,) = plan(tree)
    events = benchmarks("bench.py")[0].function.__globals__["EVENTS"]
    program = open_workload(case, context(tree)).open("f")
    for _ in range(5):
        program.step(no_mark)
    assert events == ["up"]
    program.close()
    program.close()
    assert events == ["up", "down"]


def test_recorded_numbers_are_metrics_that_gate_only_where_that_is_said(tree) -> None:
    source = """
        @ci_bench.benchmark
        def f():
            ci_bench.record("tokens", 7)
            ci_bench.record("tokens", 8)
            ci_bench.record("latency", 3, unit="ms", gate=True)
            yield lambda: torch.ones(1)
            ci_bench.record("score", 0.5, better="higher", gate=True)
    """
    metrics = {metric.name: metric for metric in evidence(tree, source).metrics}
    assert {name: metric.launches[0].values for name, metric in metrics.items()} == {
        "recorded_tokens": (8.0,), "latency": (0.003,), "score": (0.5,),
    }  # fmt: skip
    assert (metrics["recorded_tokens"].title, metrics["latency"].unit) == ("tokens", Unit.SECONDS)
    assert metrics["score"].better is Better.HIGHER


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("'My tokens', 1", "lower-case letters"),
        ("'a', float('nan')", "not a finite number"),
        ("'a', 1, better='more'", "neither 'lower' nor 'higher'"),
        ("'a', 1, gate=True", "since it gates and the unit does not say it"),
    ],
)
def test_a_number_that_cannot_be_judged_is_refused(tree, arguments, said) -> None:
    with pytest.raises(ValueError, match=said):
        evidence(
            tree,
            f"@ci_bench.benchmark\ndef f():\n    ci_bench.record({arguments})\n    return lambda: None\n",
        )


def test_work_becomes_facts_of_a_call(tree) -> None:
    source = """
        @ci_bench.benchmark(n=[8], work=lambda n: {"bytes": 8 * n, "flops": n})
        def f(n):
            (x,) = ci_bench.inputs(1, (n,))
            return lambda: x + 1
    """
    facts = evidence(tree, source).facts
    assert (facts["bytes_per_step"], facts["model_flops_per_step"]) == (64.0, 8.0)
    assert facts["measured_peak_flops_per_s"] > 0
    with pytest.raises(
        BadBenchmark, match=r"work: .* is not a mapping of 'flops' and 'bytes' to positive numbers"
    ):
        evidence(tree, source.replace('"flops": n', '"flop": n'))


def test_a_side_without_the_case_says_so(tree) -> None:
    write(tree, ALONE.format(before="pass", mine="x"))
    (case,) = plan(tree)
    for source, said in (
        (
            ALONE.format(before="pass", mine="x").replace("def alone", "def other"),
            "bench.py has no benchmark alone on this side",
        ),
        (
            ALONE.format(before="pass", mine="x").replace("[64]", "[65]"),
            r"\[n=64\] is not one of them on this side",
        ),
        (
            ALONE.format(before="pass", mine="x").replace("n=[64]", "n=[64], provider='p'"),
            "has the providers p on this side",
        ),
    ):
        write(tree, source)
        with pytest.raises(BadBenchmark, match=said):
            open_workload(case, context(tree))


def test_a_benchmark_can_be_called_by_hand(tree) -> None:
    write(tree, ALONE.format(before="ci_bench.record('n', n)", mine="x + 1"))
    from ci_bench.suites.functions.importing import benchmarks

    (found,) = benchmarks("bench.py")
    assert found(3)().shape == (3,)
    assert found.__name__ == "alone"
