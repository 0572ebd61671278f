"""Other tools' benchmarks measured as they are: set up, timed, taken down, and gated against the commit before."""

import json
import subprocess
from importlib.util import find_spec

import pytest

pytest.importorskip("torch")

from functions_builders import QUICK, RUN, ci_bench, commit, write

from ci_bench.records import documents
from ci_bench.records.comparison import Verdict
from ci_bench.records.results import Outcome, Status

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        any(map(find_spec, ("triton", "tritonbench"))),
        reason="triton or tritonbench is installed, and nothing stands in for it",
    ),
]

TESTS = """
    import time
    import pytest
    import torch

    @pytest.fixture(scope="module")
    def kept():
        note("up")
        yield [3, 1, 2]
        note("down")

    def note(word):
        with open("events", "a") as stream:
            stream.write(word + " ")

    @pytest.mark.parametrize("pace_s", [{pace}])
    def test_paced(benchmark, kept, tmp_path, pace_s):
        (tmp_path / "x").write_text("1")
        assert benchmark(paced, kept, tmp_path / "x", {pace}) == [1, 2, 3]

    def paced(xs, file, pace_s):
        time.sleep(pace_s)
        return sorted(xs) if file.exists() else None

    def test_honest(benchmark):
        with torch.no_grad():
            assert benchmark.pedantic(graded, args=(0.004,), rounds=2, iterations=3) is False

    def graded(pace_s):
        time.sleep(pace_s)
        assert not torch.is_grad_enabled()
        return torch.is_grad_enabled()
"""
BROKEN_TESTS = """
    import tempfile, pytest

    def test_wrong(benchmark):
        assert benchmark(lambda: 1) == 2

    def test_no_fixture(benchmark, nothing):
        benchmark(len, [])

    def test_never(benchmark):
        pass

    def test_twice(benchmark):
        benchmark(len, [])
        benchmark(len, [])

    def test_gone(benchmark):
        with tempfile.NamedTemporaryFile() as stream:
            benchmark(lambda: open(stream.name).close())

    def test_anew(benchmark):
        benchmark.pedantic(len, setup=lambda: (([],), {}))

    @pytest.mark.skip(reason="not today")
    def test_skipped(benchmark):
        benchmark(len, [])

    def test_honest(benchmark):
        assert benchmark(len, []) == 0
"""
OTHER_FIXTURE = """
    import pytest

    @pytest.fixture
    def benchmark():
        raise RuntimeError("that of pytest-benchmark, say")
"""
SUITE = """
    import time

    class Paced:
        params = [{pace}]
        param_names = ["pace_s"]

        def setup_cache(self):
            return [3, 1, 2]

        def setup(self, kept, pace_s):
            self.xs = [*kept]

        def time_paced(self, kept, pace_s):
            time.sleep({pace})
            assert self.xs == kept

        def teardown(self, kept, pace_s):
            del self.xs

    def time_honest():
        time.sleep(0.004)

    def track_size():
        return {pace} * 1e4

    def track_honest():
        return 40

    track_size.unit = track_honest.unit = "MiB"
"""
BROKEN_SUITE = """
    class Suite:
        params = [1, 2]
        param_names = ["n"]

        def setup(self, n):
            if n == 1:
                raise NotImplementedError("too small")

        def time_f(self, n):
            raise KeyError("missing")

        def time_anew(self, n): ...
        time_anew.number = 1

        def track_text(self, n):
            return "fast"

        def track_peak(self, n):
            return n
        track_peak.unit = "MiB"

        def track_count(self, n):
            return n

    def setup(*given): ...
    def time_honest(): ...
"""
REPORTS = """
    import time
    import torch
    import triton

    def paced(x, pace_s):
        time.sleep(pace_s)
        return x.softmax(-1)

    @triton.testing.perf_report(
        triton.testing.Benchmark(x_names=["n"], x_vals=[64], line_arg="provider", line_vals=["torch", "mine"], plot_name="softmax")
    )
    def softmax(n, provider):
        x = torch.randn(n, n)
        call = {{"torch": lambda: paced(x, 0.004), "mine": lambda: paced(x, {pace})}}[provider]
        ms, low, high = triton.testing.do_bench(call, quantiles=[0.5, 0.2, 0.8])
        return x.numel() / ms
"""
BROKEN_REPORTS = """
    import torch
    import triton

    KERNEL = triton.jit(print)

    def plot(provider):
        return triton.testing.Benchmark(
            x_names=["n"], x_vals=[64], line_arg="provider", line_vals=["torch", provider], plot_name="softmax"
        )

    def timed(n, provider, mine):
        x = torch.randn(n, n)
        call = mine if provider == "mine" else torch.nn.functional.softmax
        return triton.testing.do_bench(lambda: call(x, -1), return_mode="median")

    @triton.testing.perf_report(plot("mine"))
    def other(n, provider):
        return timed(n, provider, lambda x, dim: x.softmax(0))

    @triton.testing.perf_report(plot("mine"))
    def none(n, provider):
        return timed(n, provider, None) if provider == "torch" else 1.0

    @triton.testing.perf_report(plot("mine"))
    def twice(n, provider):
        return timed(n, provider, torch.softmax) / timed(n, provider, torch.softmax)

    @triton.testing.perf_report(plot("mine"))
    def broken(n, provider):
        raise RuntimeError("no such kernel")

    @triton.testing.perf_report(plot("mine"))
    def kernel(n, provider):
        return timed(n, provider, lambda x, dim: KERNEL[(1,)](x))
"""
OPERATORS = """
    import time
    import torch
    from tritonbench.utils.triton_op import BenchmarkOperator, register_benchmark

    def paced(x, pace_s):
        time.sleep(pace_s)
        return x + x

    class Operator(BenchmarkOperator):
        DEFAULT_PRECISION = "fp16"

        @register_benchmark(baseline=True)
        def eager(self, x):
            return lambda: paced(x, 0.004)

        @register_benchmark()
        def mine(self, x):
            assert x.dtype is torch.float16 and x.device.type == "cpu"
            return lambda: paced(x, {pace})

        def get_input_iter(self):
            yield (torch.randn(64, device=self.device, dtype=self.dtype),)
"""


def measured(tree, *paths):
    done = ci_bench(tree, "run", *paths, "-o", "out", *QUICK)
    rows = documents.read_results(tree / "out" / "results.json").cases
    return done, {row.case.id.removeprefix("functions/"): row for row in rows}


def configure(tree, **run):
    config = {"schema_version": 1, "run": {**RUN, **run}, "suites": {"functions": [{"path": "x"}]}}
    (tree / "ci-bench.yml").write_text(json.dumps(config))


def reasons(rows):
    return {
        name: (row.status, row.failure.reason if row.failure else "") for name, row in rows.items()
    }


def test_what_is_broken_is_a_row_with_file_function_and_reason_and_its_neighbours_are_measured(
    tree,
) -> None:
    configure(tree)
    write(tree, BROKEN_TESTS, file="benchmarks/test_x.py", head="")
    write(tree, OTHER_FIXTURE, file="benchmarks/conftest.py", head="")
    write(tree, BROKEN_SUITE, file="benchmarks/suite.py", head="")
    _, rows = measured(tree, "benchmarks")
    where = "benchmarks/test_x.py::"
    wanted = {
        "test_wrong": (Status.FAILED, f"{where}test_wrong: AssertionError: assert 1 == 2"),
        "test_no_fixture": (
            Status.FAILED,
            f"{where}test_no_fixture: no fixture is called 'nothing'",
        ),
        "test_never": (
            Status.FAILED,
            f"{where}test_never: it ends without calling the fixture `benchmark`",
        ),
        "test_twice": (Status.FAILED, f"{where}test_twice: it uses the fixture `benchmark` twice"),
        "test_gone": (
            Status.FAILED,
            f"{where}test_gone: what it hands to benchmark fails once the function around it has ended",
        ),
        "test_anew": (
            Status.SKIPPED,
            f"{where}test_anew: benchmark.pedantic has a setup or teardown for each round",
        ),
        "test_skipped": (Status.SKIPPED, f"{where}test_skipped: not today"),
        "test_honest": (Status.OK, ""),
        "Suite.time_f[n=1]": (
            Status.SKIPPED,
            "benchmarks/suite.py: Suite.time_f: setup skips it: too small",
        ),
        "Suite.time_f[n=2]": (
            Status.FAILED,
            "benchmarks/suite.py:10: Suite.time_f[n=2]: KeyError: 'missing'",
        ),
        "Suite.time_anew[n=2]": (
            Status.SKIPPED,
            "benchmarks/suite.py: Suite.time_anew: number = 1 asks for setup before each",
        ),
        "Suite.track_text[n=2]": (
            Status.FAILED,
            "benchmarks/suite.py: Suite.track_text returns a str instead of a number",
        ),
        "time_honest": (Status.OK, ""),
    }
    found = reasons(rows)
    assert {
        name: (found[name][0], found[name][1][: len(words)]) for name, (_, words) in wanted.items()
    } == wanted
    tracked = {
        metric.name: metric
        for name in ("peak", "count")
        for metric in rows[f"Suite.track_{name}[n=2]"].metrics
    }
    assert {*tracked} == {"track_peak", "recorded_track_count"}
    assert tracked["track_peak"].launches[0].values == (2 * 2**20,)


def test_a_report_that_hands_nothing_over_twice_or_a_kernel_says_so_and_other_results_are_shown(
    tree,
) -> None:
    configure(tree)
    write(tree, BROKEN_REPORTS, file="benchmarks/reports.py", head="")
    _, rows = measured(tree, "benchmarks")
    where = "benchmarks/reports.py:"
    assert reasons(rows) == {
        "other[n=64]": (Status.OK, ""),
        "none[n=64]": (
            Status.FAILED,
            f"{where}21: none: mine does not call triton.testing.do_bench, but exactly one call is timed",
        ),
        "twice[n=64]": (
            Status.FAILED,
            f"{where}25: twice: torch calls triton.testing.do_bench 2 times, but exactly one call is timed",
        ),
        "broken[n=64]": (Status.FAILED, f"{where}29: broken[n=64]: RuntimeError: no such kernel"),
        "kernel[n=64]": (
            Status.SKIPPED,
            "triton.jit(print) is launched, and triton is not installed here",
        ),
    }
    (check,) = [check for check in rows["other[n=64]"].checks if check.name == "agrees"]
    assert (check.arm, check.outcome, check.informative) == ("mine", Outcome.UNKNOWN, True)
    assert "its file does not say" in check.detail


@pytest.mark.alone
@pytest.mark.slow
def test_what_became_slower_is_found_in_each_format_and_its_neighbours_are_not(tree) -> None:
    """30 % more time (asleep, which a busy machine changes little) in one case of each format, and 30 % more that asv tracks."""
    configure(tree, blocks=2, sample_s=0.005, warmup_s=0.2)
    subprocess.run(["git", "init", "--quiet"], cwd=tree, check=True)
    (tree / ".gitignore").write_text("out*\n.noise\n.locks\n__pycache__\nevents\n")
    files = {"test_x.py": TESTS, "suite.py": SUITE, "reports.py": REPORTS, "add.py": OPERATORS}
    for name, pace in (("base", 0.004), ("head", 0.0052)):
        for file, source in files.items():
            # the case's parameter stays, what is called with it does not
            text = source.format(pace=pace).replace(f"[{pace}]", "[0.004]")
            write(tree, text, file=f"benchmarks/{file}", head="")
        commit(tree, name)
    done = ci_bench(
        tree,
        "gate",
        "benchmarks/",
        "--baseline",
        "paired",
        "--base",
        "HEAD~1",
        *QUICK,
        "--launches",
        "5",
        "-o",
        "out",
    )
    comparison = documents.read_comparison(tree / "out" / "comparison.json")
    times = {
        (case.id.removeprefix("functions/"), pair.arm): pair
        for case in comparison.cases
        for pair in case.pairs
        if pair.metric == "step_time"
    }
    slower = {name for name, pair in times.items() if pair.verdict is Verdict.REGRESSED}
    assert slower == {
        ("test_paced[pace_s=0.004]", "test_paced"),
        ("Paced.time_paced[pace_s=0.004]", "time_paced"),
        ("softmax[n=64]", "mine"),
        ("add[x=64]", "mine"),
    }, done.stdout + done.stderr
    assert {name for name, _ in times} == {name for name, _ in slower} | {
        "test_honest",
        "time_honest",
    }
    sizes = {
        case.id.rpartition("/")[2]: case.verdict for case in comparison.cases if "track" in case.id
    }
    assert sizes == {"track_size": Verdict.REGRESSED, "track_honest": Verdict.UNCHANGED}
    assert all(0.65 < times[name].speedup < 0.9 for name in slower)
    assert done.returncode == 1
    assert {case.head_status for case in comparison.cases} == {Status.OK}
    events = (tree / "events").read_text().split() if (tree / "events").exists() else []
    assert events.count("up") == events.count("down")
