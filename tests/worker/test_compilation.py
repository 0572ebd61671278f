"""What is counted of dynamo's work."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from ci_bench.records.results import Better, Outcome
from ci_bench.suites.shared.worker.sharing import really_compiled
from ci_bench.worker import isolated
from ci_bench.worker.compilation import (
    CompileCounter,
    CompileCounts,
    _by_first_line,
    _is_recompile,
    cache_environment,
    phases_of,
)
from ci_bench.worker.isolated import _really_compiled


@pytest.mark.parametrize(
    ("compile_id", "again"),
    [
        ("0/0", False), ("3/0", False), ("3/1", True), ("3/12", True), ("0/0_1", False), ("3/1_2", True), ("[!0/]3/1", True),
        ("!0/3/1", True), ("[0/]2/0", False), ("", False), ("None", False), ("3", True), ("0", False), ("a/b", False),
    ],
)  # fmt: skip
def test_a_recompile_is_a_second_compilation_of_a_frame(compile_id: str, again: bool) -> None:
    assert _is_recompile(compile_id) is again


def test_breaks_with_the_same_first_line_are_added_up() -> None:
    reasons = {"print\n  at a.py:1": 2, "print\n  at b.py:7": 3, "\nitem()\n": 1, "": 1}
    assert _by_first_line(reasons) == {"print": 5, "item()": 1, "no reason given": 1}


def test_both_caches_lie_in_the_folder() -> None:
    assert {Path(path).parent for path in cache_environment(Path("/c")).values()} == {Path("/c")}


def _counts(graphs: int) -> CompileCounts:
    return CompileCounts(graphs=graphs, graph_breaks=1, recompiles=2, break_reasons={"print": 1})


def test_an_arm_without_a_graph_was_not_compiled() -> None:
    assert _really_compiled("inductor", _counts(0)).outcome is Outcome.FAIL
    compiled = _really_compiled("inductor", _counts(3))
    assert (compiled.outcome, compiled.detail) == (
        Outcome.PASS,
        "3 graphs of 0 operations, 1 breaks, 2 recompiles. print (1x)",
    )


def test_reasons_come_in_their_order() -> None:
    places = {"z": "attend.py:566 in forward", "a": "late.py:7 in f"}
    counts = CompileCounts(
        graphs=3, graph_breaks=4, recompiles=0, break_reasons={"z": 3, "a": 1}, break_places=places
    )
    detail = _really_compiled("inductor", counts).detail
    assert detail.endswith("z at attend.py:566 in forward (3x); a at late.py:7 in f (1x)")


def test_every_count_is_a_metric_and_breaks_are_counted_by_reason_too() -> None:
    counts = CompileCounts(
        graphs=3,
        graph_breaks=5,
        recompiles=2,
        break_reasons={"print": 4, "item()": 1},
        operations=40,
    )
    metrics = {metric.name: metric for metric in isolated._counts("inductor", counts, 0)}
    values = {name: metric.launches[0].values for name, metric in metrics.items()}
    assert values == {
        "graphs": (3.0,), "graph_breaks": (5.0,), "unique_graph_breaks": (2.0,), "recompiles": (2.0,), "fallbacks": (0.0,),
        "cudagraph_skips": (0.0,), "ops_captured": (40.0,),
    }  # fmt: skip
    assert [name for name, metric in metrics.items() if metric.better is Better.HIGHER] == [
        "ops_captured"
    ]


@pytest.mark.engine
def test_dynamo_tells_graphs_breaks_and_recompiles() -> None:
    torch = pytest.importorskip("torch")
    counter = CompileCounter()

    @torch.compile(backend="eager")
    def broken(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    broken(torch.ones(3))
    once = counter.read()
    assert (once.graphs, once.graph_breaks, once.recompiles) == (2, 1, 0)
    broken(torch.ones(3, dtype=torch.float64))
    again = counter.read()
    assert (again.graph_breaks, again.recompiles > 0) == (2, True)
    assert CompileCounter().read() == CompileCounts(
        graphs=0, graph_breaks=0, recompiles=0, break_reasons={}
    )


@pytest.mark.engine
def test_dynamo_tells_where_and_why() -> None:
    torch = pytest.importorskip("torch")
    counter = CompileCounter()

    @torch.compile(backend="eager")
    def broken(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    broken(torch.ones(3))
    broken(torch.ones(3, dtype=torch.float64))
    counts = counter.read()
    assert (counts.operations, counts.fallbacks, counts.cudagraph_skips) == (4, 0, 0)
    ((reason, place),) = counts.break_places.items()
    assert reason in counts.break_reasons
    assert place.startswith("test_compilation.py:")
    assert place.endswith(" in broken")
    assert (
        "broken: 0/0: tensor 'x' dtype mismatch. expected Float, actual Double"
        in counts.recompile_reasons
    )


@pytest.mark.engine
def test_a_frame_that_dynamo_gave_up_is_a_fallback() -> None:
    torch = pytest.importorskip("torch")
    from torch._dynamo import config

    def refuse(graph, inputs):
        raise RuntimeError("no")

    counter = CompileCounter()
    with config.patch(suppress_errors=True, fail_on_recompile_limit_hit=False):
        torch.compile(lambda x: x.sin() + 1, backend=refuse)(torch.ones(3))
    counts = counter.read()
    assert (counts.graphs, counts.fallbacks) == (0, 1)


def _recorded(**figures: int) -> object:
    return SimpleNamespace(**{f"{name}_us": value for name, value in figures.items()})


def test_each_phase_counts_without_those_inside_it() -> None:
    forward = _recorded(
        dynamo_cumulative_compile_time=5_000_000,
        aot_autograd_cumulative_compile_time=4_500_000,
        inductor_cumulative_compile_time=4_000_000,
        triton_compile_time=3_000_000,
        runtime_triton_autotune_time=None,
    )
    backward = _recorded(
        inductor_cumulative_compile_time=2_000_000,
        triton_compile_time=1_500_000,
        runtime_triton_autotune_time=250_000,
    )
    assert phases_of([forward, backward]) == pytest.approx(
        {"dynamo": 0.5, "aot": 0.5, "inductor": 1.5, "kernels": 4.5, "autotune": 0.25}
    )
    assert phases_of([forward]) == pytest.approx(
        {"dynamo": 0.5, "aot": 0.5, "inductor": 1.0, "kernels": 3.0}
    )


def test_a_backend_without_aot_is_traced_only() -> None:
    assert phases_of([_recorded(dynamo_cumulative_compile_time=40_000), SimpleNamespace()]) == {
        "dynamo": 0.04
    }


@pytest.mark.engine
def test_torch_still_records_the_phases() -> None:
    torch = pytest.importorskip("torch")
    counter = CompileCounter()
    values = torch.ones(4, requires_grad=True)
    torch.compile(lambda x: (x.sin() * 2).sum(), backend="aot_eager")(values).backward()
    phases = counter.phases_s()
    assert phases.keys() == {"dynamo", "aot"}
    assert all(0 < seconds < 60 for seconds in phases.values())


@pytest.mark.parametrize("inside", [False, True])
def test_a_step_of_modules_that_dynamo_leaves_to_eager_is_no_fault_of_the_arm(inside) -> None:
    """Inside another module dynamo leaves the whole frame, without a graph break."""
    torch = pytest.importorskip("torch")

    class Recurrent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.GRU(4, 4)

        def forward(self, rows):
            return self.inner(rows)[0]

    model = Recurrent() if inside else torch.nn.LSTM(4, 4)
    counter = CompileCounter()
    torch.compile(model, backend="eager")(torch.randn(3, 2, 4))
    check = _really_compiled("inductor", counter.read())
    assert check.outcome is Outcome.UNKNOWN
    assert "ran uncompiled. Attempted to wrap RNN, GRU, or LSTM" in check.detail
    in_rank = really_compiled("ddp+inductor")
    assert in_rank.outcome is Outcome.UNKNOWN
    assert "ran uncompiled; Attempted to wrap RNN, GRU, or LSTM" in in_rank.detail
    both = CompileCounts(
        graphs=0,
        graph_breaks=2,
        recompiles=0,
        break_reasons={"Attempted to wrap RNN, GRU, or LSTM": 1, "print": 1},
    )
    assert _really_compiled("inductor", both).outcome is Outcome.FAIL
