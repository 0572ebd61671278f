"""Benchmarks of other tools, as they are: what is recognised without running it, and what cases are made of it."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
from functions_builders import write

from ci_bench.errors import BadConfig
from ci_bench.suites.functions.collecting.recognising import Format, recognise
from ci_bench.suites.functions.plan import Functions, must_be_imported

PYTEST, ASV, REPORT, OPERATOR = Format
SOURCES = {
    "a test with the fixture": ("def test_f(benchmark): ...", (PYTEST,)),
    "a test in a class": ("class TestF:\n    def test_f(self, n, benchmark): ...", (PYTEST,)),
    "a test without the fixture": ("def test_benchmark(n): ...", ()),
    "another function with the fixture": ("def helper(benchmark): ...", ()),
    "a method of asv's": ("class Suite:\n    def time_f(self): ...", (ASV,)),
    "a function of asv's": ("def track_f(): ...", (ASV,)),
    "one with parameters": ("def time_f(n): ...\ntime_f.params = [1, 2]", (ASV,)),
    "a helper that times a call": ("def time_f(call): ...", ()),
    "a method of a helper": ("class Clock:\n    def time_of(self, call): ...", ()),
    "a method whose class may inherit its parameters": (
        "class Suite(Base):\n    def time_f(self, n): ...",
        (ASV,),
    ),
    "inside of an if": ("if True:\n    def peakmem_f(): ...", (ASV,)),
    "one of ours by asv's name": ("import ci_bench\n@ci_bench.benchmark\ndef time_f(): ...", ()),
    "a report": ("@triton.testing.perf_report(configs)\ndef f(n, provider): ...", (REPORT,)),
    "a report by its own name": ("@perf_report(configs)\ndef f(n, provider): ...", (REPORT,)),
    "an operator, whose plot is none": (
        (
            "class Operator(BenchmarkOperator):\n    @register_benchmark()\n    def f(self, x): ...\n"
            "    def plot(self):\n        @perf_report(x)\n        def g(): ..."
        ),
        (OPERATOR,),
    ),
    "two": ("def test_f(benchmark): ...\nclass Suite:\n    def time_f(self): ...", (PYTEST, ASV)),
    "a report without an @": (
        "bench = triton.testing.perf_report(configs)(f)\ndef f(n, provider): ...",
        (REPORT,),
    ),
    "a report of nothing": ("bench = triton.testing.perf_report(configs)\nother = f(g)", ()),
    "a word in a text": ("'perf_report, time_f and register_benchmark'", ()),
}


@pytest.mark.parametrize("name", SOURCES)
def test_what_a_file_holds_is_read_from_its_source(name) -> None:
    source, formats = SOURCES[name]
    assert recognise(source, "bench.py") == formats


def test_a_file_that_is_no_python_is_said_to_be_that_where_it_seems_to_have_benchmarks(
    tree,
) -> None:
    write(tree, "def test_f(benchmark:", head="")
    with pytest.raises(BadConfig, match=r"bench\.py:1: "):
        Functions(folder=tree).plan({"path": "bench.py"})
    assert recognise("def f(:", "bench.py") == ()


def test_such_files_are_not_planned_where_nothing_may_be_run(tree) -> None:
    write(tree, "def time_f(): ...", head="")
    assert must_be_imported(tree, {"path": "bench.py"})
    with pytest.raises(BadConfig, match="has to be imported to be planned"):
        Functions(folder=tree).plan({"path": "bench.py"})


def test_a_file_with_nothing_recognised_says_what_is(tree) -> None:
    write(tree, "def time_f(call): ...", head="")
    with pytest.raises(
        BadConfig,
        match=r"has no benchmark; recognised are .*pytest-benchmark.*asv.*perf_report.*tritonbench",
    ):
        Functions(folder=tree).plan({"path": "bench.py"})


def listed(tree, *paths):
    """The cases that `ci-bench list` prints with their arms, and what it says on stderr."""
    command = [sys.executable, "-m", "ci_bench.cli", "list", *paths]
    done = subprocess.run(
        command,
        cwd=tree,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = done.stdout.splitlines()
    cases: dict[str, str] = {}
    for line in lines:
        if line.startswith("functions/"):
            cases[line] = line.removeprefix("functions/").partition("[")[0]  # its only arm
        elif "arms: " in line:
            cases[[*cases][-1]] = line.partition("arms: ")[2].replace(" (reference)", "")
    return cases, done.stderr


TESTS = """
    import pytest

    class Plain:
        pass

    @pytest.mark.benchmark(group="sizes")
    @pytest.mark.parametrize("n", [64, 2**7])
    @pytest.mark.parametrize(("kind", "shape"), [("a", (1, 2)), pytest.param("b", (3, 4), marks=pytest.mark.skip(reason="later"))])
    def test_grid(benchmark, n, kind, shape):
        benchmark(len, [n])

    @pytest.fixture(params=[0.5, 1.0])
    def share(request):
        return request.param

    class TestOfClass:
        def test_f(self, benchmark, share): ...

    @pytest.mark.parametrize("thing", [Plain(), pytest.param(Plain(), id="the plain one")])
    def test_things(benchmark, thing): ...

    @pytest.mark.parametrize("n", [pytest.param(1, id="one"), pytest.param(1, id="uno"), 2])
    def test_twice(benchmark, n): ...

    def test_of_nothing(): ...
"""


def test_tests_are_cases_by_their_parameters_and_by_pytests_ids_where_these_have_no_name(
    tree,
) -> None:
    write(tree, TESTS, file="benchmarks/test_x.py", head="")
    (tree / "pytest.ini").write_text(
        "[pytest]\naddopts = --no-such-option -n 4\nstrict_markers = true\n"
    )
    cases, said = listed(tree, "benchmarks/")
    assert [*cases] == [
        "functions/test_grid[kind=a,n=64,shape=1x2]",
        "functions/test_grid[kind=a,n=128,shape=1x2]",
        "functions/test_grid[kind=b,n=64,shape=3x4]",
        "functions/test_grid[kind=b,n=128,shape=3x4]",
        "functions/TestOfClass.test_f[share=0.5]",
        "functions/TestOfClass.test_f[share=1.0]",
        "functions/test_things[id=thing0]",
        "functions/test_things[id=the_plain_one_8d5c13]",
        "functions/test_twice[id=one,n=1]",
        "functions/test_twice[id=uno,n=1]",
        "functions/test_twice[n=2]",
    ], said


SUITE = """
    import ci_bench

    class Base:
        param_names = ["n", "how often?"]
        params = ([10, 1000], ["once", object()])

        def setup(self, cached, n, how): ...

        def time_inherited(self, cached, n, how): ...

    class Suite(Base):
        def setup_cache(self):
            return 1

        def peakmem_f(self, cached, n, how): ...
        def mem_f(self, cached, n, how): ...

    def time_alone(n): ...
    time_alone.params = [1, 2]

    def track_count():
        return 1

    def time_of(call): ...

    @ci_bench.benchmark(n=[1])
    def mine(n):
        return lambda: None
"""


def test_suites_of_asv_are_cases_by_params_and_what_is_decorated_in_the_same_file_is_there_too(
    tree,
) -> None:
    write(tree, SUITE, file="benchmarks/suite.py", head="")
    cases, said = listed(tree, "benchmarks/")
    assert [*cases] == [
        "functions/mine[n=1]",
        *(
            f"functions/{name}[how_often_={how},n={n}]"
            for name in ("Base.time_inherited", "Suite.time_inherited", "Suite.peakmem_f")
            for n in (10, 1000)
            for how in ("once", "number1")
        ),
        "functions/time_alone[param1=1]",
        "functions/time_alone[param1=2]",
        "functions/track_count",
    ], said
    assert cases["functions/track_count"] == "track_count"


def test_a_suite_in_a_package_has_the_parameters_of_its_base_and_only_what_is_its_own(tree) -> None:
    base = "class Base:\n    params = [1, 2]\n    def time_of_base(self, n): ...\n"
    suite = "from .common import Base\nclass Suite(Base):\n    def time_f(self, n): ...\n"
    clock = "class Clock(dict):\n    def time_of(self, call): ...\n"
    for file, source in {"__init__": "", "common": base, "suite": suite, "clock": clock}.items():
        write(tree, source, file=f"benchmarks/{file}.py", head="")
    cases, said = listed(tree, "benchmarks/")
    names = ("Base.time_of_base", "Suite.time_of_base", "Suite.time_f")
    assert [*cases] == [f"functions/{name}[param1={n}]" for name in names for n in (1, 2)], said


REPORTS = """
    import torch
    import triton
    import triton.language as tl

    @triton.autotune(configs=[triton.Config({{"B": 64}}, num_warps=4)], key=["n"])
    @triton.jit
    def kernel(x, B: tl.constexpr): ...

    def config(dtype, lines, x_vals=(64, [128, 32])):
        return triton.testing.Benchmark(
            ["M", "N"], x_vals, line_arg="provider", line_vals=lines, line_names=lines, styles=[], ylabel="GB/s",
            plot_name=f"softmax of {{dtype}}", args={{"dtype": dtype}},
        )

    @triton.testing.perf_report([config(torch.float16, ["torch", "my own"]), config(torch.float32, ["torch", "my own"]){more}])
    def softmax(M, N, dtype, provider):
        return triton.testing.do_bench(lambda: None)
"""
OPERATORS = """
    import torch
    from typing import Generator, List
    from tritonbench.utils.triton_op import BenchmarkOperator, BenchmarkOperatorMetrics, register_benchmark, register_metric

    class Operator(BenchmarkOperator):
        @register_metric()
        def gbps(self, name, inputs, metrics: BenchmarkOperatorMetrics): ...

        @register_benchmark()
        def twice(self, x):
            return lambda: x * 2

        @register_benchmark(baseline=True)
        def torch_sum(self, x):
            return lambda: x + x

        @register_benchmark(enabled=False)
        def later(self, x): ...

        {more}

        def get_input_iter(self) -> Generator:
            for n in (64, 1 << 40):
                yield (torch.empty(n, 2, device=self.device, dtype=self.dtype),)
"""
NEEDS_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
ABSENT = pytest.mark.skipif(
    find_spec("triton") is not None, reason="triton is installed, and nothing stands in for it"
)


@pytest.mark.engine
@NEEDS_TORCH
@ABSENT
def test_a_report_is_cases_by_x_and_args_with_the_lines_as_providers(tree) -> None:
    write(tree, REPORTS.format(more=""), file="benchmarks/reports.py", head="")
    cases, said = listed(tree, "benchmarks/")
    assert cases == {
        f"functions/softmax[M={m},N={n},dtype={dtype}]": "torch, my_own_5ce280"
        for dtype in ("float16", "float32")
        for m, n in ((64, 64), (128, 32))
    }, said


@pytest.mark.engine
@NEEDS_TORCH
@ABSENT
def test_plots_of_other_lines_are_benchmarks_of_their_own_and_a_wrong_x_is_named(tree) -> None:
    write(
        tree,
        REPORTS.format(more=', config(torch.float16, ["torch", "fp8"], [64])'),
        file="benchmarks/reports.py",
        head="",
    )
    cases, said = listed(tree, "benchmarks/")
    first, second = (
        f"functions/softmax.softmax_of_torch_float16_{place}[M=64,N=64,dtype=float16]"
        for place in (1, 2)
    )
    assert (cases[first], cases[second], len(cases)) == ("torch, my_own_5ce280", "torch, fp8", 5), (
        said
    )
    write(
        tree,
        REPORTS.format(more=", config(1, ['torch', 'my own'], [(1, 2, 3)])"),
        file="benchmarks/reports.py",
        head="",
    )
    cases, said = listed(tree, "benchmarks/")
    assert not cases
    assert "reports.py:16: softmax: x_vals: (1, 2, 3) has 3 values for 2 names (M, N)" in said


@pytest.mark.engine
@NEEDS_TORCH
@pytest.mark.skipif(
    find_spec("tritonbench") is not None,
    reason="tritonbench is installed, and nothing stands in for it",
)
def test_an_operator_is_cases_by_its_inputs_which_are_never_made_to_be_listed(tree) -> None:
    write(tree, OPERATORS.format(more=""), file="benchmarks/vector_add/operator.py", head="")
    cases, said = listed(tree, "benchmarks/")
    arms = "torch_sum, twice"
    assert cases == {
        "functions/vector_add[x=64x2]": arms,
        f"functions/vector_add[x={1 << 40}x2]": arms,
    }, said
    named = "def get_x_val(self, inputs):\n            return inputs[0].shape[1]"
    write(tree, OPERATORS.format(more=named), file="benchmarks/vector_add/operator.py", head="")
    assert [*listed(tree, "benchmarks/")[0]] == [
        "functions/vector_add[id=0,x=2]",
        "functions/vector_add[id=1,x=2]",
    ]


def test_a_file_that_pytest_cannot_collect_is_named(tree) -> None:
    write(
        tree,
        "import nothing_of_that_name\ndef test_f(benchmark): ...",
        file="benchmarks/test_x.py",
        head="",
    )
    cases, said = listed(tree, "benchmarks/")
    assert not cases
    assert "benchmarks/test_x.py: pytest cannot collect it" in said
    assert "nothing_of_that_name" in said


def test_without_pytest_its_tests_are_an_error_that_says_so(tree) -> None:
    write(tree, "def test_f(benchmark): ...", file="benchmarks/test_x.py", head="")
    (tree / "pytest.py").write_text("raise ImportError('none here')\n")
    cases, said = listed(tree, "benchmarks/")
    assert not cases
    assert (
        "benchmarks/test_x.py: it has tests with the fixture `benchmark`, but pytest is not installed"
        in said
    )


INSTALLED = {
    "triton/__init__.py": "from . import testing\n",
    "triton/testing.py": """
        class Mark:
            def __init__(self, fn, benchmarks):
                self.fn, self.benchmarks = fn, benchmarks

        class Benchmark:
            def __init__(self, **options):
                vars(self).update({"args": {}, "line_names": [], **options})

        def perf_report(benchmarks):
            return lambda fn: Mark(fn, benchmarks)

        def do_bench(fn, warmup=25, rep=100, grad_to_none=None, quantiles=None, return_mode="mean"):
            return "timed by triton"
        """,
    "triton/tuning.py": """
        def tune(call):
            from triton.testing import do_bench
            return do_bench(call)
        """,
    "tritonbench/__init__.py": "",
    "tritonbench/utils/__init__.py": "",
    "tritonbench/utils/parser.py": """
        import argparse

        def get_parser():
            parser = argparse.ArgumentParser()
            for name in ("op", "device", "benchmark-name"):
                parser.add_argument(f"--{name}")
            return parser
        """,
    "tritonbench/utils/triton_op.py": """
        def register_benchmark(*args, **options):
            raise AssertionError("not in a folder of tritonbench's operators")

        register_metric = register_x_val = register_benchmark

        class BenchmarkOperatorMetrics: ...

        class BenchmarkOperator:
            def __init__(self, tb_args, extra_args):
                assert tb_args.benchmark_name == tb_args.op == "vector_add"
                self.device, self.dtype = tb_args.device, None
        """,
    "reports.py": """
        import torch
        from triton.testing import Benchmark, do_bench, perf_report
        from triton.tuning import tune

        @perf_report(Benchmark(x_names=["n"], x_vals=[3], line_arg="provider", line_vals=["a", "b"], plot_name="p"))
        def f(n, provider):
            x = torch.ones(n, requires_grad=True)
            assert tune(lambda: None) == "timed by triton"
            with torch.no_grad():
                assert do_bench(lambda: (provider, x.grad, torch.is_grad_enabled()), grad_to_none=[x], quantiles=[0.5, 0.2]) == [1, 1]
        """,
}


@pytest.mark.engine
@NEEDS_TORCH
@ABSENT
def test_where_triton_is_installed_its_own_timer_hands_over_what_a_benchmark_gives_it_and_tunes_as_before(
    tree, monkeypatch
) -> None:
    """With packages of their names and signatures: the real ones are in no environment of these tests."""
    from ci_bench.suites.functions.importing import benchmarks

    for file, source in {**INSTALLED, "vector_add/operator.py": OPERATORS.format(more="")}.items():
        write(tree, source, file=file, head="")
    before = {*sys.modules}
    try:
        (report,) = benchmarks("reports.py")
        (opened,) = [one.function(n=3) for one in report.providers if one.arm.name == "b"]
        assert next(opened)() == ("b", None, False)
        assert sys.modules["triton"].testing.do_bench(None) == "timed by triton"
        (operator,) = benchmarks("vector_add/operator.py")
        assert operator.declaration("").ordered_arms == ("torch_sum", "twice")
        opened = operator.providers[1].function(x=[(64, 2)])
        assert next(opened)().shape == (64, 2)
    finally:
        for name in {*sys.modules} - before:
            if name.partition(".")[0] in {"triton", "tritonbench"}:
                del sys.modules[name]
